#include "engine/model/weights.h"

#include <cstring>
#include <map>
#include <mutex>
#include <set>

#include "engine/base/log.h"
#include "kernels/quantize.h"

namespace thermocline::model {
namespace {

using kernels::DType;

constexpr std::int64_t kPanelsPerItem =
    16;  // rows of 16 panels are read at once: one I/O, one item

// One tensor on its way from the file into the buffer.
struct Slot {
  const TensorInfo* tensor = nullptr;
  std::size_t offset = 0;                   // bytes into the buffer
  kernels::PackedMatrix* matrix = nullptr;  // for matrices in panels, and neurons in rows
  kernels::RowMatrix* rows = nullptr;       // for down_rows
  Layout layout = Layout::kPanels;
  const float** vector = nullptr;  // for norms and biases

  bool is_matrix() const { return matrix != nullptr || rows != nullptr; }
  DType type() const { return matrix != nullptr ? matrix->type : rows->type; }
  int cols() const { return matrix != nullptr ? matrix->cols : rows->cols; }
};

// What the file must hold, and where it goes.
class Plan {
 public:
  Plan(const ModelFile& model, const LoadWeightsOptions& options, Weights& weights)
      : model_(model), options_(options), weights_(weights) {}

  Status Make() {
    const ModelConfig& c = model_.config;
    const int d = c.hidden_size;
    weights_.layers.resize(static_cast<std::size_t>(c.num_hidden_layers));
    RETURN_IF_ERROR(Matrix("token_embd.weight", c.vocab_size, d, weights_.token_embedding));
    if (!c.rotary()) {
      const int rows = c.max_position_embeddings + c.architecture->position_offset;
      RETURN_IF_ERROR(Matrix("position_embd.weight", rows, d, weights_.position_embedding));
    }
    for (int i = 0; i < c.num_hidden_layers; ++i) {
      LayerWeights& layer = weights_.layers[static_cast<std::size_t>(i)];
      const std::string prefix = StrCat("blk.", i, ".");
      RETURN_IF_ERROR(Attention(prefix, layer));
      RETURN_IF_ERROR(FeedForward(prefix, layer));
    }
    RETURN_IF_ERROR(NormOf("output_norm", d, weights_.output_norm));
    RETURN_IF_ERROR(OptionalVector("output.bias", c.vocab_size, weights_.output.bias));
    if (!c.tie_word_embeddings)
      RETURN_IF_ERROR(Matrix("output.weight", c.vocab_size, d, weights_.output.weight));
    return RefuseStrangers();
  }

  const std::vector<Slot>& slots() const { return slots_; }
  std::size_t bytes() const { return bytes_; }

 private:
  Status Attention(const std::string& p, LayerWeights& layer) {
    const ModelConfig& c = model_.config;
    const int d = c.hidden_size, q = c.num_attention_heads * c.head_dim,
              kv = c.num_key_value_heads * c.head_dim;
    RETURN_IF_ERROR(NormOf(p + "attn_norm", d, layer.attn_norm));
    if (c.architecture->second_norm && model_.Find(p + "attn_norm_2.weight") != nullptr)
      RETURN_IF_ERROR(NormOf(p + "attn_norm_2", d, layer.attn_second_norm));
    RETURN_IF_ERROR(LinearOf(p + "attn_q", q, d, layer.q));
    RETURN_IF_ERROR(LinearOf(p + "attn_k", kv, d, layer.k));
    RETURN_IF_ERROR(LinearOf(p + "attn_v", kv, d, layer.v));
    if (c.architecture->head_norm) {
      RETURN_IF_ERROR(NormOf(p + "attn_q_norm", c.head_dim, layer.q_norm));
      RETURN_IF_ERROR(NormOf(p + "attn_k_norm", c.head_dim, layer.k_norm));
    }
    RETURN_IF_ERROR(LinearOf(p + "attn_output", d, q, layer.attn_output));
    return CheckBiases(p);
  }

  // Families that differ in rotation alone have the same tensors but for these.
  Status CheckBiases(const std::string& p) const {
    const bool alone = model_.config.architecture->qkv_bias == QkvBias::kAlone;
    const bool q = model_.Find(p + "attn_q.bias") != nullptr;
    if (alone && !q)
      return base::InvalidArgument(model_.path, ": tensor '", p, "attn_q.bias' is missing");
    if (!alone && q && model_.Find(p + "attn_output.bias") == nullptr) {
      return base::InvalidArgument(model_.path, ": tensor '", p, "attn_q.bias' without '", p,
                                   "attn_output.bias' has no place in the architecture '",
                                   model_.config.architecture->name, "'");
    }
    return OkStatus();
  }

  Status FeedForward(const std::string& p, LayerWeights& layer) {
    const ModelConfig& c = model_.config;
    const int d = c.hidden_size, f = c.intermediate_size;
    if (!c.architecture->parallel_block) RETURN_IF_ERROR(NormOf(p + "ffn_norm", d, layer.ffn_norm));
    if (c.architecture->gated)
      RETURN_IF_ERROR(NeuronsOf(p + "ffn_gate", f, d, options_.gate, layer.gate));
    RETURN_IF_ERROR(NeuronsOf(p + "ffn_up", f, d, options_.up, layer.up));
    RETURN_IF_ERROR(LowRankOf(p, layer.low_rank));
    if (model_.Find(p + "ffn_down_t.weight") == nullptr)
      return LinearOf(p + "ffn_down", d, f, layer.down);
    RETURN_IF_ERROR(DownRows(p + "ffn_down_t.weight", f, d, layer.down_rows));
    return OptionalVector(p + "ffn_down.bias", d, layer.down.bias);
  }

  Status NeuronsOf(const std::string& module, int rows, int cols, Layout layout,
                   NeuronMatrix& out) {
    RETURN_IF_ERROR(Matrix(module + ".weight", rows, cols, out.linear.weight));
    slots_.back().layout = out.layout = layout;
    return OptionalVector(module + ".bias", rows, out.linear.bias);
  }

  Status DownRows(const std::string& name, int rows, int cols, kernels::RowMatrix& out) {
    ASSIGN_OR_RETURN(const TensorInfo* tensor, Find(name, rows, cols));
    DType type = kernels::SummableType(*tensor->type->dtype);
    if (cols % kernels::Traits(type).block_size != 0) type = DType::kF16;
    out = {.type = type, .rows = rows, .cols = cols};
    Reserve({.tensor = tensor, .rows = &out, .layout = Layout::kRows}, out.bytes());
    return OkStatus();
  }

  // All layers have a predictor, or none.
  Status LowRankOf(const std::string& p, LowRankWeights& out) {
    const ModelConfig& c = model_.config;
    const TensorInfo* fc1 = model_.Find(p + "fc1.weight");
    if (fc1 == nullptr && model_.Find("blk.0.fc1.weight") == nullptr) return OkStatus();
    const int rank = fc1 == nullptr ? 0 : static_cast<int>(fc1->rows);
    RETURN_IF_ERROR(Matrix(p + "fc1.weight", rank, c.hidden_size, out.fc1.weight));
    RETURN_IF_ERROR(Matrix(p + "fc2.weight", c.intermediate_size, rank, out.fc2.weight));
    out.threshold = c.sparse_threshold.value_or(0.0F);
    return OkStatus();
  }

  Status LinearOf(const std::string& module, int rows, int cols, Linear& out) {
    RETURN_IF_ERROR(Matrix(module + ".weight", rows, cols, out.weight));
    return OptionalVector(module + ".bias", rows, out.bias);
  }

  Status NormOf(const std::string& module, int n, NormWeights& out) {
    RETURN_IF_ERROR(Vector(module + ".weight", n, out.weight));
    if (model_.config.architecture->norm == Norm::kRms) return OkStatus();
    return OptionalVector(module + ".bias", n, out.bias);
  }

  Result<const TensorInfo*> Find(const std::string& name, int rows, int cols) {
    const TensorInfo* tensor = model_.Find(name);
    if (tensor == nullptr)
      return base::InvalidArgument(model_.path, ": tensor '", name, "' is missing");
    if (tensor->rows != rows || tensor->cols != cols) {
      return base::InvalidArgument(model_.path, ": tensor '", name, "' has the shape [",
                                   tensor->rows, ", ", tensor->cols, "], expected [", rows, ", ",
                                   cols, "]");
    }
    if (tensor->num_dims > 2)
      return base::InvalidArgument(model_.path, ": tensor '", name, "' has ", tensor->num_dims,
                                   " dimensions, expected at most 2");
    if (!tensor->type->dtype.has_value()) {
      return base::Unimplemented(model_.path, ": tensor '", name, "' has type ", tensor->type->name,
                                 "; supported are f32, f16, bf16, q8_0, q4_0, q4_1, q5_0, q5_1, "
                                 "q2_k, q3_k, q4_k, q5_k, q6_k and iq4_nl");
    }
    used_.insert(name);
    return tensor;
  }

  Status Matrix(const std::string& name, int rows, int cols, kernels::PackedMatrix& out) {
    ASSIGN_OR_RETURN(const TensorInfo* tensor, Find(name, rows, cols));
    out = {.type = TypeInMemory(*tensor), .rows = rows, .cols = cols};
    Reserve({.tensor = tensor, .matrix = &out}, out.bytes());
    return OkStatus();
  }

  DType TypeInMemory(const TensorInfo& tensor) const {
    const DType stored = *tensor.type->dtype;
    const bool head = tensor.name == "output.weight" ||
                      (tensor.name == "token_embd.weight" && model_.config.tie_word_embeddings);
    const bool fits = tensor.cols % kernels::Traits(DType::kQ8_0).block_size == 0;
    if (options_.quantize_head && head && fits && !kernels::Traits(stored).quantized)
      return DType::kQ8_0;
    return kernels::NativeType(stored);
  }

  Status Vector(const std::string& name, int n, const float*& out) {
    ASSIGN_OR_RETURN(const TensorInfo* tensor, Find(name, 1, n));
    Reserve({.tensor = tensor, .vector = &out}, static_cast<std::size_t>(n) * sizeof(float));
    return OkStatus();
  }

  Status OptionalVector(const std::string& name, int n, const float*& out) {
    return model_.Find(name) == nullptr ? OkStatus() : Vector(name, n, out);
  }

  void Reserve(Slot slot, std::size_t bytes) {
    slot.offset = bytes_;
    bytes_ += (bytes + 63) / 64 * 64;  // cache lines
    slots_.push_back(slot);
  }

  Status RefuseStrangers() const {
    for (const TensorInfo& tensor : model_.tensors) {
      if (used_.contains(tensor.name) || tensor.name == "rope_freqs.weight") continue;
      if (tensor.name == "output.weight" && model_.config.tie_word_embeddings) continue;
      return base::InvalidArgument(
          model_.path, ": tensor '", tensor.name, "' has no place in the architecture '",
          model_.config.architecture->name, "' with ", model_.config.num_hidden_layers, " layers");
    }
    return OkStatus();
  }

  const ModelFile& model_;
  const LoadWeightsOptions& options_;
  Weights& weights_;
  std::vector<Slot> slots_;
  std::set<std::string> used_;
  std::size_t bytes_ = 0;
};

// Reads what is planned. Slots are cut into items of some panels, so that threads end together and
// first touch spreads the pages over the memory of all of them.
class Loader {
 public:
  Loader(const ModelFile& model, const LoadWeightsOptions& options, const Plan& plan,
         Weights& weights)
      : model_(model), options_(options), weights_(weights) {
    for (const Slot& slot : plan.slots()) {
      const std::int64_t step = kPanelsPerItem * kernels::kPanelRows;
      for (std::int64_t row = 0; row < slot.tensor->rows; row += step)
        items_.push_back({&slot, row, std::min(step, slot.tensor->rows - row)});
      auto* data = reinterpret_cast<std::uint8_t*>(weights.memory.data() + slot.offset);
      if (slot.matrix != nullptr) slot.matrix->data = data;
      if (slot.rows != nullptr) slot.rows->data = data;
      if (slot.vector != nullptr) *slot.vector = reinterpret_cast<float*>(data);
    }
  }

  Status Read(base::WorkerPool& pool) {
    std::mutex mutex;
    Status first_error;
    std::size_t done = 0;
    std::vector<Scratch> scratch(static_cast<std::size_t>(pool.threads()));
    pool.Run(static_cast<int>(items_.size()), [&](int index, int thread) {
      const Item& item = items_[static_cast<std::size_t>(index)];
      const Status status = item.slot->is_matrix()
                                ? ReadPanels(item, scratch[static_cast<std::size_t>(thread)])
                                : ReadVector(item);
      const std::lock_guard lock(mutex);
      if (!status.ok() && first_error.ok()) first_error = status;
      if (++done % 64 == 0 && options_.on_progress)
        options_.on_progress(static_cast<double>(done) / static_cast<double>(items_.size()));
    });
    return first_error;
  }

 private:
  struct Item {
    const Slot* slot;
    std::int64_t first_row, rows;
  };
  // One thread's rows as stored and as converted; kept from item to item.
  struct Scratch {
    std::vector<std::byte> stored;
    std::vector<std::uint8_t> converted;
  };

  Status ReadVector(const Item& item) const {
    const TensorInfo& tensor = *item.slot->tensor;
    std::vector<std::byte> bytes(tensor.bytes);
    RETURN_IF_ERROR(model_.ReadRows(tensor, 0, 1, bytes));
    const auto* row = reinterpret_cast<const std::uint8_t*>(bytes.data());
    RETURN_IF_ERROR(Verify(tensor, row, 0));
    auto* out = reinterpret_cast<float*>(weights_.memory.data() + item.slot->offset);
    kernels::DequantizeRow(*tensor.type->dtype, row, static_cast<int>(tensor.cols), out);
    for (std::int64_t i = 0; i < tensor.cols; ++i) out[i] += tensor.plus;
    return OkStatus();
  }

  Status ReadPanels(const Item& item, Scratch& scratch) const {
    const TensorInfo& tensor = *item.slot->tensor;
    const DType stored = *tensor.type->dtype, native = item.slot->type();
    const int cols = static_cast<int>(tensor.cols);
    scratch.stored.resize(tensor.row_bytes() * static_cast<std::size_t>(item.rows));
    std::span<std::byte> bytes = scratch.stored;
    RETURN_IF_ERROR(model_.ReadRows(tensor, item.first_row, item.rows, bytes));
    const auto* rows = reinterpret_cast<const std::uint8_t*>(bytes.data());
    for (std::int64_t r = 0; r < item.rows; ++r)
      RETURN_IF_ERROR(Verify(tensor, rows + static_cast<std::uint64_t>(r) * tensor.row_bytes(),
                             item.first_row + r));
    if (stored != native) {
      scratch.converted.resize(kernels::RowBytes(native, cols) *
                               static_cast<std::size_t>(item.rows));
      for (std::int64_t r = 0; r < item.rows; ++r)
        Convert(stored, native, rows + static_cast<std::uint64_t>(r) * tensor.row_bytes(), cols,
                scratch.converted.data() +
                    static_cast<std::size_t>(r) * kernels::RowBytes(native, cols));
      rows = scratch.converted.data();
    }
    // A panel has the bytes of its sixteen rows.
    std::uint8_t* out = reinterpret_cast<std::uint8_t*>(weights_.memory.data()) +
                        item.slot->offset +
                        static_cast<std::size_t>(item.first_row) * kernels::RowBytes(native, cols);
    for (std::int64_t r = 0; r < item.rows; r += kernels::kPanelRows) {
      const auto count =
          static_cast<int>(std::min<std::int64_t>(kernels::kPanelRows, item.rows - r));
      if (item.slot->layout == Layout::kRows) {
        kernels::PackRows(native, rows, count, cols, out);
      } else {
        kernels::PackPanel(native, rows, count, cols, out);
      }
      rows += kernels::kPanelRows * kernels::RowBytes(native, cols);
      out += kernels::PanelBytes(native, cols);
    }
    return OkStatus();
  }

  static void Convert(DType stored, DType native, const std::uint8_t* row, int cols,
                      std::uint8_t* out) {
    if (native == kernels::NativeType(stored))
      return kernels::ConvertRowToNative(stored, row, cols, out);
    std::vector<float> values(static_cast<std::size_t>(cols));
    kernels::DequantizeRow(stored, row, cols, values.data());
    kernels::QuantizeRow(native, values.data(), cols, out);
  }

  Status Verify(const TensorInfo& tensor, const std::uint8_t* row, std::int64_t index) const {
    if (!options_.verify) return OkStatus();
    const DType type = *tensor.type->dtype;
    const int block = kernels::FindNonFiniteBlock(type, row, static_cast<int>(tensor.cols));
    if (block < 0) return OkStatus();
    return base::DataLoss(
        model_.path, ": tensor '", tensor.name, "', row ", index, ", column ",
        block * kernels::Traits(type).block_size,
        kernels::Traits(type).quantized ? ": the scale of a block is" : ": an element is",
        " NaN or infinite, expected finite; the file is damaged");
  }

  const ModelFile& model_;
  const LoadWeightsOptions& options_;
  Weights& weights_;
  std::vector<Item> items_;
};

// Says what is held in another type than the file's, and what it costs.
void LogConversions(const Plan& plan) {
  struct Sum {
    int tensors = 0;
    std::size_t before = 0, after = 0;
  };
  std::map<std::pair<DType, DType>, Sum> sums;
  for (const Slot& slot : plan.slots()) {
    const DType stored = *slot.tensor->type->dtype;
    if (!slot.is_matrix() || slot.type() == stored) continue;
    Sum& sum = sums[{stored, slot.type()}];
    ++sum.tensors;
    sum.before += slot.tensor->bytes;
    sum.after +=
        static_cast<std::size_t>(slot.tensor->rows) * kernels::RowBytes(slot.type(), slot.cols());
  }
  for (const auto& [types, sum] : sums) {
    const bool lossless = types.first == DType::kQ3_K || types.first == DType::kIQ4_NL;
    base::LogWarning(
        sum.tensors, " tensors of type ", kernels::Traits(types.first).name, " are held as ",
        kernels::Traits(types.second).name, ": ", base::HumanBytes(static_cast<double>(sum.before)),
        " become ", base::HumanBytes(static_cast<double>(sum.after)),
        lossless ? ", every weight keeps its value" : ", weights are rounded once more");
  }
}

}  // namespace

std::size_t Weights::bytes_per_token() const {
  std::size_t bytes = output.weight.bytes();
  for (const LayerWeights& l : layers) {
    for (const Linear* linear :
         {&l.q, &l.k, &l.v, &l.attn_output, &l.gate.linear, &l.up.linear, &l.down})
      bytes += linear->weight.bytes();
    bytes += l.down_rows.bytes();
  }
  return bytes;
}

void SetLayout(NeuronMatrix& matrix, Layout layout, base::WorkerPool& pool) {
  if (matrix.layout == layout || matrix.linear.weight.rows == 0) return;
  const kernels::PackedMatrix& weight = matrix.linear.weight;
  pool.Run(kernels::NumPanels(weight.rows), [&](int panel, int) {
    thread_local std::vector<std::uint8_t> copy;
    auto* bytes = const_cast<std::uint8_t*>(weight.panel(panel));
    copy.assign(bytes, bytes + kernels::PanelBytes(weight.type, weight.cols));
    if (layout == Layout::kRows) {
      kernels::RowsFromPanel(weight.type, copy.data(), weight.cols, bytes);
    } else {
      kernels::PanelFromRows(weight.type, copy.data(), weight.cols, bytes);
    }
  });
  matrix.layout = layout;
}

Result<std::unique_ptr<Weights>> LoadWeights(const ModelFile& model, base::WorkerPool& pool,
                                             const LoadWeightsOptions& options) {
  if (!model.has_weights)
    return base::InvalidArgument(model.path, ": holds a vocabulary only, no weights");
  auto weights = std::make_unique<Weights>();
  Plan plan(model, options, *weights);
  RETURN_IF_ERROR(plan.Make());
  ASSIGN_OR_RETURN(weights->memory, base::HugeBuffer::Allocate(plan.bytes()));
  LogConversions(plan);
  Loader loader(model, options, plan, *weights);
  RETURN_IF_ERROR(loader.Read(pool));
  if (model.config.tie_word_embeddings) weights->output.weight = weights->token_embedding;
  return weights;
}

}  // namespace thermocline::model
