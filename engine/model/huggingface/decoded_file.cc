#include "engine/model/huggingface/decoded_file.h"

#include <algorithm>
#include <cstring>

#include "engine/base/bytes.h"
#include "kernels/quantize.h"

namespace thermocline::model {

constexpr int kElementBytes = 2;

std::uint64_t DecodedFile::Add(DecodedMatrix matrix) {
  const std::uint64_t begin = bytes_;
  bytes_ += static_cast<std::uint64_t>(matrix.rows) * matrix.cols * kElementBytes;
  matrices_.push_back({.begin = begin, .matrix = std::move(matrix)});
  return begin;
}

Status DecodedFile::ReadAt(std::uint64_t offset, std::span<std::byte> out) const {
  if (offset > bytes_ || out.size() > bytes_ - offset)
    return base::DataLoss(path_, ": byte ", offset + out.size(), " of ", bytes_,
                          " decoded bytes is asked for");
  std::vector<float> floats;
  std::vector<std::byte> row;
  while (!out.empty()) {
    const auto after =
        std::upper_bound(matrices_.begin(), matrices_.end(), offset,
                         [](std::uint64_t at, const Placed& each) { return at < each.begin; });
    const Placed& placed = *std::prev(after);
    const std::uint64_t inside = offset - placed.begin;
    floats.resize(placed.matrix.cols);
    row.resize(floats.size() * kElementBytes);
    RETURN_IF_ERROR(placed.matrix.source(static_cast<std::int64_t>(inside / row.size()), floats));
    kernels::QuantizeRow(placed.matrix.type, floats.data(), static_cast<int>(floats.size()),
                         base::Octets(row.data()));
    const std::size_t skipped = inside % row.size(),
                      count = std::min(row.size() - skipped, out.size());
    std::memcpy(out.data(), row.data() + skipped, count);
    out = out.subspan(count);
    offset += count;
  }
  return OkStatus();
}

}  // namespace thermocline::model
