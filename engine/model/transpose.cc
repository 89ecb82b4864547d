#include "engine/model/transpose.h"

#include <algorithm>

#include "engine/base/bytes.h"
#include "kernels/quantize.h"

namespace thermocline::model {
namespace {

constexpr std::int64_t kBlockMax = 256;        // elements
constexpr std::int64_t kFloatsMax = 64 << 20;  // of a strip of columns
// Rows that a thread transposes together: one cache line of every column.
constexpr std::int64_t kRowsTogether = 16;

// One thread's buffers for some rows.
struct Scratch {
  std::vector<std::byte> stored;
  std::vector<float> values;
};

struct Strip {
  const ModelFile& model;
  const TensorInfo& tensor;
  std::int64_t first, count;
  std::span<float> out;
};

// Transposes rows [row, row + n). Rows in the scratch are `stride` apart, which is not a multiple
// of a page, so that one column's 16 elements do not compete for the same cache set.
Status TurnRows(const Strip& strip, std::int64_t row, std::int64_t n, Scratch& scratch) {
  const TensorInfo& tensor = strip.tensor;
  const auto size = [](std::int64_t value) { return static_cast<std::size_t>(value); };
  const std::int64_t stride = strip.count + kRowsTogether;
  scratch.stored.resize(size(n) * tensor.row_bytes());
  scratch.values.resize(size(n * stride));
  RETURN_IF_ERROR(strip.model.ReadRows(tensor, row, n, scratch.stored));
  const std::size_t skipped =
      size(strip.first / tensor.type->block_size * tensor.type->block_bytes);
  for (std::int64_t r = 0; r < n; ++r) {
    const auto* stored = base::Octets(scratch.stored.data());
    kernels::DequantizeRow(*tensor.type->dtype, stored + size(r) * tensor.row_bytes() + skipped,
                           static_cast<int>(strip.count), &scratch.values[size(r * stride)]);
  }
  for (std::int64_t c = 0; c < strip.count; ++c) {
    float* out = &strip.out[size(c * tensor.rows + row)];
    for (std::int64_t r = 0; r < n; ++r) out[r] = scratch.values[size(r * stride + c)];
  }
  return OkStatus();
}

}  // namespace

std::int64_t ColumnsAtOnce(std::int64_t rows) {
  return std::max(kBlockMax, kFloatsMax / rows / kBlockMax * kBlockMax);
}

Status ReadColumns(const ModelFile& model, const TensorInfo& tensor, std::int64_t first,
                   std::int64_t count, base::WorkerPool& pool, std::span<float> out) {
  const Strip strip{model, tensor, first, count, out};
  const std::int64_t items = (tensor.rows + kRowsTogether - 1) / kRowsTogether;
  std::vector<Status> status(items);
  std::vector<Scratch> scratch(pool.threads());
  pool.Run(static_cast<int>(items), [&](int item, int thread) {
    const std::int64_t row = item * kRowsTogether;
    status[item] =
        TurnRows(strip, row, std::min(kRowsTogether, tensor.rows - row), scratch[thread]);
  });
  for (const Status& each : status) RETURN_IF_ERROR(each);
  return OkStatus();
}

}  // namespace thermocline::model
