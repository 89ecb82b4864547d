#include "engine/model/weights.h"

#include <atomic>
#include <mutex>

#include "kernels/quantize.h"

namespace thermocline::model {
namespace {

using kernels::DType;

// One tensor on its way from the file into the buffer.
struct Slot {
  const TensorInfo* tensor = nullptr;
  std::size_t offset = 0;                   // bytes into the buffer
  kernels::PackedMatrix* matrix = nullptr;  // for matrices
  const float** vector = nullptr;           // for norms
};

class Loader {
 public:
  Loader(const ModelFile& model, Weights& weights) : model_(model), weights_(weights) {}

  Status Plan() {
    const ModelConfig& c = model_.config;
    const int d = c.hidden_size, f = c.intermediate_size;
    const int q = c.num_attention_heads * c.head_dim, kv = c.num_key_value_heads * c.head_dim;
    weights_.layers.resize(static_cast<std::size_t>(c.num_hidden_layers));
    RETURN_IF_ERROR(Matrix("token_embd.weight", c.vocab_size, d, weights_.token_embedding));
    for (int i = 0; i < c.num_hidden_layers; ++i) {
      LayerWeights& layer = weights_.layers[static_cast<std::size_t>(i)];
      const std::string p = StrCat("blk.", i, ".");
      RETURN_IF_ERROR(Vector(p + "attn_norm.weight", d, layer.attn_norm));
      RETURN_IF_ERROR(Matrix(p + "attn_q.weight", q, d, layer.q));
      RETURN_IF_ERROR(Matrix(p + "attn_k.weight", kv, d, layer.k));
      RETURN_IF_ERROR(Matrix(p + "attn_v.weight", kv, d, layer.v));
      RETURN_IF_ERROR(Matrix(p + "attn_output.weight", d, q, layer.attn_output));
      RETURN_IF_ERROR(Vector(p + "ffn_norm.weight", d, layer.ffn_norm));
      RETURN_IF_ERROR(Matrix(p + "ffn_gate.weight", f, d, layer.gate));
      RETURN_IF_ERROR(Matrix(p + "ffn_up.weight", f, d, layer.up));
      RETURN_IF_ERROR(Matrix(p + "ffn_down.weight", d, f, layer.down));
    }
    RETURN_IF_ERROR(Vector("output_norm.weight", d, weights_.output_norm));
    if (!c.tie_word_embeddings)
      RETURN_IF_ERROR(Matrix("output.weight", c.vocab_size, d, weights_.output));
    return OkStatus();
  }

  Status Read(base::WorkerPool& pool, const std::function<void(double)>& on_progress) {
    ASSIGN_OR_RETURN(weights_.memory, base::HugeBuffer::Allocate(bytes_));
    std::mutex mutex;
    Status first_error;
    std::size_t bytes_done = 0;
    pool.Run(static_cast<int>(slots_.size()), [&](int item, int) {
      const Slot& slot = slots_[static_cast<std::size_t>(item)];
      const Status status = ReadSlot(slot);
      const std::lock_guard lock(mutex);
      if (!status.ok() && first_error.ok()) first_error = status;
      bytes_done += slot.tensor->bytes;
      if (on_progress)
        on_progress(static_cast<double>(bytes_done) / static_cast<double>(tensor_bytes_));
    });
    if (model_.config.tie_word_embeddings) weights_.output = weights_.token_embedding;
    return first_error;
  }

 private:
  Result<const TensorInfo*> Find(const std::string& name, int rows, int cols) const {
    const TensorInfo* tensor = model_.Find(name);
    if (tensor == nullptr)
      return base::InvalidArgument(model_.path, ": tensor '", name, "' is missing");
    if (tensor->rows != rows || tensor->cols != cols) {
      return base::InvalidArgument(model_.path, ": tensor '", name, "' has the shape [",
                                   tensor->rows, ", ", tensor->cols, "], expected [", rows, ", ",
                                   cols, "]");
    }
    if (!tensor->type->dtype.has_value()) {
      return base::Unimplemented(model_.path, ": tensor '", name, "' has type ", tensor->type->name,
                                 "; supported are f32, f16, bf16, q8_0, q4_0, q4_1, q6_k");
    }
    return tensor;
  }

  Status Matrix(const std::string& name, int rows, int cols, kernels::PackedMatrix& out) {
    ASSIGN_OR_RETURN(const TensorInfo* tensor, Find(name, rows, cols));
    out = {.type = *tensor->type->dtype, .rows = rows, .cols = cols};
    Reserve({.tensor = tensor, .matrix = &out}, out.bytes());
    return OkStatus();
  }

  Status Vector(const std::string& name, int n, const float*& out) {
    ASSIGN_OR_RETURN(const TensorInfo* tensor, Find(name, 1, n));
    Reserve({.tensor = tensor, .vector = &out}, static_cast<std::size_t>(n) * sizeof(float));
    return OkStatus();
  }

  void Reserve(Slot slot, std::size_t bytes) {
    slot.offset = bytes_;
    bytes_ += (bytes + 63) / 64 * 64;  // cache lines
    tensor_bytes_ += slot.tensor->bytes;
    slots_.push_back(slot);
  }

  Status ReadSlot(const Slot& slot) const {
    auto* out = reinterpret_cast<std::uint8_t*>(weights_.memory.data() + slot.offset);
    const TensorInfo& tensor = *slot.tensor;
    const int cols = static_cast<int>(tensor.cols);
    std::vector<std::byte> rows(tensor.row_bytes() * kernels::kPanelRows);
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(rows.data());
    if (slot.vector != nullptr) {
      RETURN_IF_ERROR(model_.ReadRows(tensor, 0, 1, std::span(rows).first(tensor.row_bytes())));
      auto* floats = reinterpret_cast<float*>(out);
      kernels::DequantizeRow(*tensor.type->dtype, bytes, cols, floats);
      *slot.vector = floats;
      return OkStatus();
    }
    slot.matrix->data = out;
    for (std::int64_t row = 0; row < tensor.rows; row += kernels::kPanelRows) {
      const std::int64_t count = std::min<std::int64_t>(kernels::kPanelRows, tensor.rows - row);
      RETURN_IF_ERROR(model_.ReadRows(
          tensor, row, count,
          std::span(rows).first(tensor.row_bytes() * static_cast<std::size_t>(count))));
      kernels::PackPanel(slot.matrix->type, bytes, static_cast<int>(count), cols, out);
      out += kernels::PanelBytes(slot.matrix->type, cols);
    }
    return OkStatus();
  }

  const ModelFile& model_;
  Weights& weights_;
  std::vector<Slot> slots_;
  std::size_t bytes_ = 0;
  std::uint64_t tensor_bytes_ = 0;
};

}  // namespace

std::size_t Weights::bytes_per_token() const {
  std::size_t bytes = output.bytes();
  for (const LayerWeights& l : layers) {
    for (const kernels::PackedMatrix* m :
         {&l.q, &l.k, &l.v, &l.attn_output, &l.gate, &l.up, &l.down})
      bytes += m->bytes();
  }
  return bytes;
}

Result<std::unique_ptr<Weights>> LoadWeights(const ModelFile& model, base::WorkerPool& pool,
                                             const std::function<void(double)>& on_progress) {
  if (!model.has_weights)
    return base::InvalidArgument(model.path, ": holds a vocabulary only, no weights");
  auto weights = std::make_unique<Weights>();
  Loader loader(model, *weights);
  RETURN_IF_ERROR(loader.Plan());
  RETURN_IF_ERROR(loader.Read(pool, on_progress));
  return weights;
}

}  // namespace thermocline::model
