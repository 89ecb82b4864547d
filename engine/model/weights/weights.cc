#include "engine/model/weights/weights.h"

#include <cstring>
#include <map>

#include "engine/base/bytes.h"
#include "engine/base/index.h"
#include "engine/base/log.h"
#include "engine/base/mutex.h"
#include "engine/base/ratio.h"
#include "engine/model/weights/weight_plan.h"
#include "kernels/quantize.h"

namespace thermocline::model {
namespace {

using kernels::DType;

constexpr std::int64_t kPanelsPerItem = 16;  // rows of 16 panels are read in one I/O as one item

// Reads the planned tensors. Slots are divided into items of several panels, so that threads finish
// together and first touch distributes the pages over the memory of all of them.
class Loader {
 public:
  Loader(const ModelFile& model, const LoadWeightsOptions& options, const WeightPlan& plan,
         Weights& weights)
      : model_(model), options_(options), weights_(weights) {
    for (const WeightSlot& slot : plan.slots()) {
      const std::int64_t step =
          slot.is_matrix() ? kPanelsPerItem * kernels::kPanelRows : slot.tensor->rows;
      for (std::int64_t row = 0; row < slot.tensor->rows && slot.stage < 0; row += step)
        items_.push_back({&slot, row, std::min(step, slot.tensor->rows - row)});
      auto* data = base::Octets(weights.memory.data() + slot.offset);
      if (slot.matrix != nullptr) slot.matrix->data = data;
      if (slot.rows != nullptr) slot.rows->data = data;
      if (slot.vector != nullptr) *slot.vector = reinterpret_cast<float*>(data);
    }
  }

  Status Read(base::WorkerPool& pool) {
    base::Mutex mutex;
    Status first_error;
    std::size_t done = 0;
    std::vector<Scratch> scratch(pool.threads());
    pool.Run(base::IntSize(items_), [&](int index, int thread) {
      const Item& item = items_[index];
      const bool cancelled = options_.cancelled != nullptr && *options_.cancelled;
      const Status status = cancelled ? Status(StatusCode::kCancelled, "the load was cancelled")
                            : item.slot->is_matrix() ? ReadPanels(item, scratch[thread])
                                                     : ReadVector(item);
      const base::MutexLock lock(mutex);
      if (!status.ok() && first_error.ok()) first_error = status;
      if (++done % 64 == 0 && options_.on_progress)
        options_.on_progress(base::Ratio(done, items_.size()));
    });
    return first_error;
  }

 private:
  struct Item {
    const WeightSlot* slot;
    std::int64_t first_row, rows;
  };
  // One thread's rows as stored and as converted; reused for all items.
  struct Scratch {
    std::vector<std::byte> stored;
    std::vector<std::uint8_t> converted;
  };

  Status ReadVector(const Item& item) const {
    const TensorInfo& tensor = *item.slot->tensor;
    std::vector<std::byte> bytes(tensor.bytes);
    RETURN_IF_ERROR(model_.ReadRows(tensor, 0, tensor.rows, bytes));
    const auto* row = base::Octets(bytes.data());
    auto* out = reinterpret_cast<float*>(weights_.memory.data() + item.slot->offset);
    for (std::int64_t r = 0; r < tensor.rows; ++r) {
      RETURN_IF_ERROR(Verify(tensor, row, r));
      kernels::DequantizeRow(*tensor.type->dtype, row, tensor.columns(), out);
      for (std::int64_t i = 0; i < tensor.cols; ++i) out[i] += tensor.plus;
      row += tensor.row_bytes();
      out += tensor.cols;
    }
    return OkStatus();
  }

  Status ReadPanels(const Item& item, Scratch& scratch) const {
    const TensorInfo& tensor = *item.slot->tensor;
    const DType stored = *tensor.type->dtype, held = item.slot->type();
    const int cols = tensor.columns();
    scratch.stored.resize(tensor.row_bytes() * item.rows);
    std::span<std::byte> bytes = scratch.stored;
    RETURN_IF_ERROR(model_.ReadRows(tensor, item.first_row, item.rows, bytes));
    const auto* rows = base::Octets(bytes.data());
    for (std::int64_t r = 0; r < item.rows; ++r)
      RETURN_IF_ERROR(Verify(tensor, rows + r * tensor.row_bytes(), item.first_row + r));
    if (stored != held) {
      scratch.converted.resize(kernels::RowBytes(held, cols) * item.rows);
      for (std::int64_t r = 0; r < item.rows; ++r)
        kernels::ConvertRow(stored, rows + r * tensor.row_bytes(), cols, held,
                            scratch.converted.data() + r * kernels::RowBytes(held, cols));
      rows = scratch.converted.data();
    }
    // A panel takes as many bytes as its sixteen rows, so the offset is the same in both layouts.
    std::uint8_t* out = base::Octets(weights_.memory.data()) + item.slot->offset +
                        item.first_row * kernels::RowBytes(held, cols);
    for (std::int64_t r = 0; r < item.rows; r += kernels::kPanelRows) {
      const auto count =
          static_cast<int>(std::min<std::int64_t>(kernels::kPanelRows, item.rows - r));
      if (item.slot->layout == Layout::kRows) {
        kernels::PackRows(held, rows, count, cols, out);
      } else {
        kernels::PackPanel(held, rows, count, cols, out);
      }
      rows += kernels::kPanelRows * kernels::RowBytes(held, cols);
      out += kernels::PanelBytes(held, cols);
    }
    return OkStatus();
  }

  Status Verify(const TensorInfo& tensor, const std::uint8_t* row, std::int64_t index) const {
    if (!options_.verify) return OkStatus();
    const DType type = *tensor.type->dtype;
    const int block = kernels::FindNonFiniteBlock(type, row, tensor.columns());
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

// Logs the tensors that are held in another type than the file's, and the cost.
void LogConversions(const WeightPlan& plan) {
  struct Sum {
    int tensors = 0;
    std::size_t before = 0, after = 0;
  };
  std::map<std::pair<DType, DType>, Sum> sums;
  for (const WeightSlot& slot : plan.slots()) {
    const DType stored = *slot.tensor->type->dtype;
    if (!slot.is_matrix() || slot.type() == stored) continue;
    Sum& sum = sums[{stored, slot.type()}];
    ++sum.tensors;
    sum.before += slot.tensor->bytes;
    sum.after += slot.tensor->rows * kernels::RowBytes(slot.type(), slot.cols());
  }
  for (const auto& [types, sum] : sums) {
    base::LogWarning(sum.tensors, " tensors of type ", kernels::Traits(types.first).name,
                     " are held as ", kernels::Traits(types.second).name, ": ",
                     base::HumanBytes(sum.before), " become ", base::HumanBytes(sum.after),
                     kernels::ConvertsExactly(types.first, types.second)
                         ? ", every weight keeps its value"
                         : ", weights are rounded once more");
  }
}

void SetLayoutOfData(const kernels::PackedMatrix& weight, Layout layout, base::WorkerPool& pool) {
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
}

}  // namespace

std::size_t ExpertWeights::bytes() const {
  std::size_t sum = 0;
  for (const Linear* linear : {&router, &gate, &up, &down, &shared_gate, &shared_up, &shared_down})
    sum += linear->weight.bytes();
  return sum + down_rows.bytes();
}

std::size_t ExpertWeights::bytes_per_step(int used) const {
  if (!any()) return 0;
  const std::size_t chosen =
      gate.weight.bytes() + up.weight.bytes() + down.weight.bytes() + down_rows.bytes();
  return bytes() - chosen + chosen / router.weight.rows * used;
}

std::size_t Weights::bytes_per_step(int experts) const {
  std::size_t bytes = output.weight.bytes();
  for (const LayerWeights& l : layers) {
    for (const Linear* linear :
         {&l.q, &l.k, &l.v, &l.latent.q_a, &l.latent.kv_a, &l.latent.k_b, &l.latent.v_b,
          &l.recurrent.in, &l.recurrent.gate, &l.recurrent.alpha, &l.recurrent.beta,
          &l.recurrent.beta_alpha, &l.recurrent.out, &l.attn_output, &l.gate.linear, &l.up.linear,
          &l.down})
      bytes += linear->weight.bytes();
    bytes += l.down_rows.bytes() + l.experts.bytes_per_step(experts);
  }
  return bytes;
}

void SetLayout(NeuronMatrix& matrix, Layout layout, base::WorkerPool& pool) {
  if (matrix.layout == layout || matrix.linear.weight.rows == 0) return;
  const kernels::PackedMatrix& weight = matrix.linear.weight;
  if (weight.data != nullptr) SetLayoutOfData(weight, layout, pool);
  matrix.layout = layout;
}

Result<WeightSizes> MeasureWeights(const ModelFile& model, const LoadWeightsOptions& options) {
  if (!model.has_weights)
    return base::InvalidArgument(model.path, ": holds a vocabulary only, no weights");
  Weights weights;
  WeightPlan plan(model, options, weights);
  RETURN_IF_ERROR(plan.Make());
  WeightSizes sizes{plan.bytes(), {}};
  for (const Weights::Image& image : weights.images) sizes.images.push_back(image.bytes);
  return sizes;
}

Result<std::unique_ptr<Weights>> LoadWeights(const ModelFile& model, base::WorkerPool& pool,
                                             const LoadWeightsOptions& options) {
  if (!model.has_weights)
    return base::InvalidArgument(model.path, ": holds a vocabulary only, no weights");
  auto weights = std::make_unique<Weights>();
  WeightPlan plan(model, options, *weights);
  RETURN_IF_ERROR(plan.Make());
  ASSIGN_OR_RETURN(weights->memory, base::HugeBuffer::Allocate(plan.bytes()));
  if (options.log_conversions) LogConversions(plan);
  if (plan.layer_table() != nullptr) {
    ASSIGN_OR_RETURN(weights->altup.layer_embedding, FileRows::Open(model, *plan.layer_table()));
    if (options.verify) RETURN_IF_ERROR(weights->altup.layer_embedding->Verify());
  }
  Loader loader(model, options, plan, *weights);
  RETURN_IF_ERROR(loader.Read(pool));
  if (model.config.tie_word_embeddings) weights->output.weight = weights->token_embedding;
  return weights;
}

}  // namespace thermocline::model
