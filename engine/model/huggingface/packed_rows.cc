#include "engine/model/huggingface/packed_rows.h"

#include <algorithm>
#include <vector>

#include "engine/base/index.h"

namespace thermocline::model {
namespace {

Status ReadScales(const ModelFile& model, const PackedRows& p, std::int64_t at,
                  std::vector<float>& out) {
  std::vector<std::byte> bytes(p.grid_cols * ScaleBytes(p.scales.type));
  RETURN_IF_ERROR(model.files[p.scales.file]->ReadAt(p.scales.offset() + at * bytes.size(), bytes));
  out.resize(p.grid_cols);
  ToFloats(p.scales.type, bytes, out);
  for (float& scale : out) scale = p.divides ? scale / p.factor : scale * p.factor;
  return OkStatus();
}

// Reads the zero points of a row of the grid, as values of codes.
Status ReadZeros(const ModelFile& model, const PackedRows& p, std::int64_t at,
                 std::vector<float>& out) {
  out.assign(p.grid_cols, 0);
  if (!p.zeros.has_value()) return OkStatus();
  const bool words = p.zeros->type == "I32";
  const std::int64_t per_word = words ? 32 / p.bits : 1, unit = words ? 4 : 1;
  std::vector<std::byte> bytes(p.grid_cols * unit);
  const std::int64_t first = at / per_word * base::IntSize(bytes), bit = at % per_word * p.bits;
  RETURN_IF_ERROR(model.files[p.zeros->file]->ReadAt(p.zeros->offset() + first, bytes));
  const int mask = (1 << p.bits) - 1;
  for (std::int64_t i = 0; i < p.grid_cols; ++i)
    out[i] = (*p.values)[std::to_integer<int>(bytes[i * unit + bit / 8]) >> bit % 8 & mask];
  return OkStatus();
}

Status ReadRow(const ModelFile& model, const PackedRows& p, std::int64_t row,
               std::span<float> out) {
  const std::int64_t at = row / p.slab_rows * p.grid_rows + row % p.slab_rows / p.block_rows;
  std::vector<float> scales, zeros;
  RETURN_IF_ERROR(ReadScales(model, p, at, scales));
  RETURN_IF_ERROR(ReadZeros(model, p, at, zeros));
  std::vector<std::byte> codes(p.cols * p.bits / 8);
  RETURN_IF_ERROR(model.files[p.codes.file]->ReadAt(p.codes.offset() + row * codes.size(), codes));
  for (std::int64_t first = 0; first < p.cols; first += p.block_cols) {
    const std::int64_t end = std::min(first + p.block_cols, p.cols);
    const float scale = scales[first / p.block_cols], zero = zeros[first / p.block_cols];
    for (std::int64_t col = first; col < end; ++col) {
      const int byte = std::to_integer<int>(codes[p.bits == 8 ? col : col / 2]),
                code = p.bits == 8 ? byte : byte >> (col % 2 * 4) & 15;
      out[col] = ((*p.values)[code] - zero) * scale;
    }
  }
  return OkStatus();
}

}  // namespace

FloatSource RowsOf(const ModelFile& model, PackedRows packed) {
  return [&model, p = std::move(packed)](std::int64_t row, std::span<float> out) {
    return ReadRow(model, p, row, out);
  };
}

}  // namespace thermocline::model
