#include "engine/model/weights/input_major.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "engine/base/bytes.h"
#include "engine/base/index.h"
#include "engine/base/strings.h"
#include "engine/model/weights/turn_matrix.h"
#include "kernels/quantize.h"

namespace thermocline::model {
namespace {

constexpr std::size_t kRowAlignment = 64;  // of a matrix's first row
constexpr int kBlock = kernels::kActivationBlock;

// Names of the matrices in files.
struct MatrixName {
  std::string_view name;
  const Linear& (*of)(const LayerWeights&);
};
constexpr std::array<MatrixName, 7> kMatrixNames = {{
    {"attn_q", [](const LayerWeights& w) -> const Linear& { return w.q; }},
    {"attn_k", [](const LayerWeights& w) -> const Linear& { return w.k; }},
    {"attn_v", [](const LayerWeights& w) -> const Linear& { return w.v; }},
    {"attn_output", [](const LayerWeights& w) -> const Linear& { return w.attn_output; }},
    {"ffn_gate", [](const LayerWeights& w) -> const Linear& { return w.gate.linear; }},
    {"ffn_up", [](const LayerWeights& w) -> const Linear& { return w.up.linear; }},
    {"ffn_down", [](const LayerWeights& w) -> const Linear& { return w.down; }},
}};

std::string_view NameOf(const LayerWeights& layer, const Linear& matrix) {
  for (const MatrixName& named : kMatrixNames)
    if (&named.of(layer) == &matrix) return named.name;
  return "";
}

// Returns the scale of a block of Q4_0 or Q8_0: both begin with it.
float ScaleAt(const std::uint8_t* block) {
  std::uint16_t half = 0;
  std::memcpy(&half, block, sizeof(half));
  return kernels::HalfToFloat(half);
}

// Returns the larger magnitude; NaN is kept.
float LargerOrNaN(float most, float value) {
  return std::isnan(value) ? value : std::fabs(value) > most ? std::fabs(value) : most;
}

int OutputsOf(const std::vector<const Linear*>& matrices) {
  int outputs = 0;
  for (const Linear* matrix : matrices) outputs += matrix->weight.rows;
  return outputs;
}

// The shape of the copies, without data; without rows if there is nothing to copy.
kernels::RowMatrix ShapeOf(const LayerWeights& layer, InputKind kind) {
  const auto matrices = MatricesOf(layer, kind);
  if (matrices.empty()) return {};
  const int outputs = OutputsOf(matrices);
  if (outputs % kBlock != 0) return {};
  const kernels::PackedMatrix& first = matrices.front()->weight;
  return {.type = InputMajorType(first.type, first.cols), .rows = first.cols, .cols = outputs};
}

// Returns the file's copies of a kind's matrices, in their order; empty if some are missing or
// differ from the type and shape of `to`.
std::vector<const TensorInfo*> StoredCopies(const ModelFile& file, const LayerWeights& layer,
                                            std::size_t index, InputKind kind,
                                            const kernels::RowMatrix& to) {
  std::vector<const TensorInfo*> all;
  for (const Linear* matrix : MatricesOf(layer, kind)) {
    const TensorInfo* stored =
        file.Find(StrCat("blk.", index, ".", NameOf(layer, *matrix), kInputMajorSuffix));
    if (stored == nullptr || stored->type->dtype != to.type || stored->rows != to.rows ||
        stored->cols != matrix->weight.rows)
      return {};
    all.push_back(stored);
  }
  return all;
}

// Packs rows that `make_rows(first, count, out)` returns in the format of files, and bounds their
// scales.
template <typename MakeRows>
Status Pack(const MakeRows& make_rows, base::WorkerPool& pool, InputMatrix& copy) {
  const kernels::RowMatrix& to = copy.rows;
  const std::size_t row_bytes = kernels::RowBytes(to.type, to.cols);
  const int panels = kernels::NumPanels(to.rows), blocks = to.cols / kBlock;
  std::vector<float> most(base::Area(panels, blocks));
  std::vector<Status> status(panels);
  pool.Run(panels, [&](int panel, int) {
    thread_local std::vector<std::uint8_t> rows;
    rows.resize(kernels::kPanelRows * row_bytes);
    const int first = panel * kernels::kPanelRows,
              count = std::min(kernels::kPanelRows, to.rows - first);
    status[panel] = make_rows(first, count, std::span(rows).first(count * row_bytes));
    if (!status[panel].ok()) return;
    const std::size_t block_bytes = row_bytes / blocks;
    float* const largest = &most[base::Area(panel, blocks)];
    for (std::size_t i = 0; i < base::Area(count, blocks); ++i)
      largest[i % blocks] = LargerOrNaN(largest[i % blocks], ScaleAt(&rows[i * block_bytes]));
    kernels::PackRows(to.type, rows.data(), count, to.cols,
                      const_cast<std::uint8_t*>(to.data) + first * row_bytes);
  });
  for (const Status& each : status) RETURN_IF_ERROR(each);
  copy.scales_max.assign(blocks, 0);
  for (std::size_t i = 0; i < most.size(); ++i)
    copy.scales_max[i % blocks] = LargerOrNaN(copy.scales_max[i % blocks], most[i]);
  for (const float scale : copy.scales_max)
    if (!std::isfinite(scale))
      return base::DataLoss("copies for mode inputs: a scale is no number");
  return OkStatus();
}

// Reads `copy` from the file, matrices side by side.
Status ReadCopies(const ModelFile& file, const std::vector<const TensorInfo*>& stored,
                  base::WorkerPool& pool, InputMatrix& copy) {
  const std::size_t row_bytes = kernels::RowBytes(copy.rows.type, copy.rows.cols);
  return Pack(
      [&](int first, int count, std::span<std::uint8_t> out) -> Status {
        thread_local std::vector<std::byte> rows;
        std::size_t at = 0;
        for (const TensorInfo* tensor : stored) {
          const std::size_t own = tensor->row_bytes();
          rows.resize(count * own);
          RETURN_IF_ERROR(file.ReadRows(*tensor, first, count, rows));
          for (int r = 0; r < count; ++r)
            std::memcpy(&out[r * row_bytes + at], &rows[r * own], own);
          at += own;
        }
        return OkStatus();
      },
      pool, copy);
}

// Computes `copy` from the weights. `values` is memory for their floats.
Status TurnWeights(const std::vector<const Linear*>& matrices, base::WorkerPool& pool,
                   std::vector<float>& values, InputMatrix& copy) {
  const kernels::RowMatrix& to = copy.rows;
  values.resize(base::Area(to.rows, to.cols));
  int first_output = 0;
  for (const Linear* matrix : matrices) {
    TurnMatrix(matrix->weight, first_output, to.cols, pool, values);
    first_output += matrix->weight.rows;
  }
  const std::size_t row_bytes = kernels::RowBytes(to.type, to.cols);
  return Pack(
      [&](int first, int count, std::span<std::uint8_t> out) {
        for (int r = 0; r < count; ++r)
          kernels::QuantizeRow(to.type, &values[base::Area(first + r, to.cols)], to.cols,
                               &out[r * row_bytes]);
        return OkStatus();
      },
      pool, copy);
}

std::size_t AlignedBytes(const kernels::RowMatrix& matrix) {
  return (matrix.bytes() + kRowAlignment - 1) / kRowAlignment * kRowAlignment;
}

template <typename Visit>
void ForKinds(const Weights& weights, const Visit& visit) {
  for (std::size_t l = 0; l < weights.layers.size(); ++l) {
    for (int kind = 0; kind < kInputKinds; ++kind) visit(l, static_cast<InputKind>(kind));
  }
}

}  // namespace

std::vector<const Linear*> MatricesOf(const LayerWeights& layer, InputKind kind) {
  std::vector<const Linear*> all;
  switch (kind) {
    case InputKind::kAttention:
      all = {&layer.q, &layer.k, &layer.v};
      break;
    case InputKind::kAttnOutput:
      all = {&layer.attn_output};
      break;
    case InputKind::kFfn:
      all = {&layer.gate.linear, &layer.up.linear};
      break;
    case InputKind::kDown:
      all = {&layer.down};
      break;
  }
  std::erase_if(all, [](const Linear* matrix) { return matrix->weight.rows == 0; });
  return all;
}

int InputsOf(const LayerWeights& layer, InputKind kind) {
  const auto matrices = MatricesOf(layer, kind);
  return matrices.empty() ? layer.down_rows.rows : matrices.front()->weight.cols;
}

std::size_t InputMajorBytes(const Weights& weights) {
  std::size_t bytes = 0;
  ForKinds(weights, [&](std::size_t l, InputKind kind) {
    bytes += AlignedBytes(ShapeOf(weights.layers[l], kind));
  });
  return bytes;
}

std::size_t InputMajorBytes(const ModelFile& file) {
  std::size_t bytes = 0;
  for (const TensorInfo& tensor : file.tensors) {
    const auto dtype = tensor.type->dtype;
    if (!dtype.has_value() || InputMajorName(tensor.name).empty()) continue;
    const int inputs = tensor.columns(),
              outputs = static_cast<int>((tensor.rows + kBlock - 1) / kBlock * kBlock);
    bytes += base::Area(inputs, 1) * kernels::RowBytes(InputMajorType(*dtype, inputs), outputs) +
             kRowAlignment;
  }
  return bytes;
}

Result<InputMajor> MakeInputMajor(const Weights& weights, const ModelFile* file,
                                  base::WorkerPool& pool) {
  InputMajor out;
  ASSIGN_OR_RETURN(out.memory, base::HugeBuffer::Allocate(InputMajorBytes(weights)));
  out.layers.resize(weights.layers.size());
  auto* at = base::Octets(out.memory.data());
  std::vector<float> values;
  Status status;
  ForKinds(weights, [&](std::size_t l, InputKind kind) {
    const LayerWeights& layer = weights.layers[l];
    InputMatrix& copy = out.layers[l][base::Index(kind)];
    copy.rows = ShapeOf(layer, kind);
    if (copy.rows.rows == 0 || !status.ok()) return;
    copy.rows.data = at;
    at += AlignedBytes(copy.rows);
    const auto stored = file != nullptr ? StoredCopies(*file, layer, l, kind, copy.rows)
                                        : std::vector<const TensorInfo*>();
    status = stored.empty() ? TurnWeights(MatricesOf(layer, kind), pool, values, copy)
                            : ReadCopies(*file, stored, pool, copy);
  });
  RETURN_IF_ERROR(status);
  return out;
}

std::string InputMajorName(std::string_view tensor) {
  constexpr std::string_view kWeight = ".weight";
  if (!tensor.starts_with("blk.") || !tensor.ends_with(kWeight)) return "";
  tensor.remove_suffix(kWeight.size());
  const std::string_view part = tensor.substr(tensor.rfind('.') + 1);
  const bool has = std::any_of(kMatrixNames.begin(), kMatrixNames.end(),
                               [&](const auto& named) { return named.name == part; });
  return has ? StrCat(tensor, kInputMajorSuffix) : "";
}

kernels::DType InputMajorType(kernels::DType type, int cols) {
  constexpr double kFiveBits = 5;  // bits of a weight including scales: fewer means four-bit types
  const auto bits = 8 * static_cast<double>(kernels::RowBytes(type, cols));
  return bits / cols < kFiveBits ? kernels::DType::kQ4_0 : kernels::DType::kQ8_0;
}

}  // namespace thermocline::model
