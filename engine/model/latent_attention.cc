#include "engine/model/latent_attention.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "engine/base/index.h"
#include "engine/base/mutex.h"
#include "kernels/quantize.h"

namespace thermocline::model {
namespace {

constexpr std::string_view kKvB = ".attn_kv_b.weight";

// Rows of K_h^T, made of the rows of K_h as they are stored. Thread-safe: turned heads are kept,
// one for each thread that may ask.
class TurnedKeys {
 public:
  TurnedKeys(const ModelFile& model, TensorInfo stored, const LatentConfig& latent)
      : model_(model), stored_(std::move(stored)), latent_(latent) {}

  Status Row(std::int64_t row, std::span<float> out) {
    const int n = latent_.qk_nope_head_dim, c = latent_.kv_lora_rank;
    const std::int64_t head = row / c;
    const base::MutexLock lock(mutex_);
    ASSIGN_OR_RETURN(const std::vector<float>* keys, Head(head));
    const float* from = keys->data() + base::Area(static_cast<int>(row % c), n);
    std::copy_n(from, n, out.begin());
    return OkStatus();
  }

 private:
  struct Turned {
    std::int64_t head = -1;
    std::vector<float> keys;  // [c, n]
  };
  static constexpr std::size_t kHeadsKept = 16;

  Result<const std::vector<float>*> Head(std::int64_t head) REQUIRES(mutex_) {
    for (const Turned& turned : heads_)
      if (turned.head == head) return &turned.keys;
    const int n = latent_.qk_nope_head_dim, c = latent_.kv_lora_rank;
    std::vector<std::byte> rows(stored_.row_bytes() * n);
    RETURN_IF_ERROR(model_.ReadRows(stored_, head * (n + latent_.v_head_dim), n, rows));
    if (heads_.size() < kHeadsKept) heads_.emplace_back();
    Turned& out = heads_[next_++ % kHeadsKept];
    out.keys.resize(base::Area(c, n));
    out.head = head;
    std::vector<float> row(c);
    for (int i = 0; i < n; ++i) {
      kernels::DequantizeRow(
          *stored_.type->dtype,
          reinterpret_cast<const std::uint8_t*>(rows.data()) + i * stored_.row_bytes(), c,
          row.data());
      for (int j = 0; j < c; ++j) out.keys[base::Area(j, n) + i] = row[j];
    }
    return &out.keys;
  }

  const ModelFile& model_;
  const TensorInfo stored_;
  const LatentConfig latent_;
  base::Mutex mutex_;
  std::vector<Turned> heads_ GUARDED_BY(mutex_);
  std::size_t next_ GUARDED_BY(mutex_) = 0;
};

// V_h's rows, which lie behind K_h's.
TensorInfo ValuesOf(TensorInfo tensor, const ModelConfig& c) {
  const int n = c.latent.qk_nope_head_dim, v = c.latent.v_head_dim, unit = std::gcd(n, v);
  tensor.name.replace(tensor.name.find(kKvB), kKvB.size(), ".attn_v_b.weight");
  tensor.bytes = tensor.row_bytes() * c.num_attention_heads * v;
  tensor.rows = std::int64_t{c.num_attention_heads} * v;
  tensor.num_dims = 3;
  tensor.slabs = c.num_attention_heads;
  tensor.order = {.head_dim = unit,
                  .halves = false,
                  .per_group = v / unit,
                  .stride = (n + v) / unit,
                  .first = n / unit};
  return tensor;
}

}  // namespace

void SetAbsorbed(ModelConfig& c) {
  const LatentConfig& latent = c.latent;
  c.num_key_value_heads = 1;
  c.head_dim = latent.qk_rope_head_dim + latent.kv_lora_rank;
  c.rope.dim = latent.qk_rope_head_dim;
  const double yarn = c.rope.scaling == RopeScaling::kYarn && c.rope.factor > 1
                          ? latent.yarn_log_multiplier * std::log(c.rope.factor) + 1
                          : 1;
  c.attention_scale = yarn * yarn / std::sqrt(latent.qk_nope_head_dim + latent.qk_rope_head_dim);
}

Status SplitLatent(ModelFile& model) {
  const ModelConfig& c = model.config;
  if (!c.latent.any()) return OkStatus();
  const int n = c.latent.qk_nope_head_dim, rank = c.latent.kv_lora_rank;
  const std::int64_t rows = std::int64_t{c.num_attention_heads} * (n + c.latent.v_head_dim);
  for (std::size_t i = 0; i < model.tensors.size(); ++i) {
    if (!model.tensors[i].name.ends_with(kKvB)) continue;
    const TensorInfo stored = model.tensors[i];
    if (stored.rows != rows || stored.cols != rank || stored.num_dims != 2)
      return base::InvalidArgument("tensor '", stored.name, "' has the shape [", stored.rows, ", ",
                                   stored.cols, "], expected [", rows, ", ", rank, "]");
    if (!stored.type->dtype.has_value())
      return base::Unimplemented("tensor '", stored.name, "' has type ", stored.type->name,
                                 ", which cannot be read");
    model.tensors[i] = ValuesOf(stored, c);
    std::string keys = stored.name;
    keys.replace(keys.find(kKvB), kKvB.size(), ".attn_k_b.weight");
    for (const std::string& name : {keys, model.tensors[i].name}) {
      const auto same = [&](const TensorInfo& t) { return t.name == name; };
      if (std::count_if(model.tensors.begin(), model.tensors.end(), same) != (name == keys ? 0 : 1))
        return base::InvalidArgument("tensor '", name, "' is there alone and fused with others");
    }
    auto turned = std::make_shared<TurnedKeys>(model, stored, c.latent);
    model.AddMatrices(
        keys, c.num_attention_heads, rank, n,
        [turned](std::int64_t row, std::span<float> out) { return turned->Row(row, out); });
  }
  return OkStatus();
}

}  // namespace thermocline::model
