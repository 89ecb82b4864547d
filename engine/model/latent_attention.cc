#include "engine/model/latent_attention.h"

#include <cmath>
#include <numeric>

#include "engine/base/log.h"
#include "engine/model/derived_tensor.h"

namespace thermocline::model {
namespace {

constexpr std::string_view kKvB = ".attn_kv_b.weight";

// Returns K_h^T of each head.
TensorInfo KeysOf(const ModelFile& model, const TensorInfo& stored) {
  const LatentConfig& l = model.config.latent;
  std::string name = stored.name;
  name.replace(name.find(kKvB), kKvB.size(), ".attn_k_b.weight");
  return TurnedTensor(model, {.name = std::move(name),
                              .stored = stored,
                              .matrices = model.config.num_attention_heads,
                              .first_row = 0,
                              .cols = l.qk_nope_head_dim,
                              .order = {},
                              .rows = l.kv_lora_rank});
}

// Returns the rows of V_h, which follow those of K_h.
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
  if (c.attention_scale > 0) return;  // the file's own
  c.attention_scale = yarn * yarn / std::sqrt(latent.qk_nope_head_dim + latent.qk_rope_head_dim);
}

void CutToIndexed(int keys_max, ModelConfig& c) {
  if (keys_max <= 0 || c.max_position_embeddings <= keys_max) return;
  base::LogWarning("the context is cut from ", c.max_position_embeddings, " to ", keys_max,
                   " tokens: of longer ones the model's indexer chooses ", keys_max,
                   " keys for each token, and it is not computed");
  c.max_position_embeddings = keys_max;
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
    const TensorInfo keys = KeysOf(model, stored);
    if (model.Find(keys.name) != nullptr)
      return base::InvalidArgument("tensor '", keys.name, "' is there alone and fused with others");
    model.tensors.push_back(keys);
  }
  return OkStatus();
}

}  // namespace thermocline::model
