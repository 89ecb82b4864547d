#include "engine/model/huggingface/packed_rows.h"

#include <algorithm>
#include <vector>

namespace thermocline::model {
namespace {

Status ReadScales(const ModelFile& model, const PackedRows& p, std::int64_t row,
                  std::vector<float>& out) {
  const std::int64_t at = row / p.slab_rows * p.grid_rows + row % p.slab_rows / p.block_rows;
  std::vector<std::byte> bytes(p.grid_cols * ScaleBytes(p.scales.type));
  RETURN_IF_ERROR(model.files[p.scales.file]->ReadAt(p.scales.offset() + at * bytes.size(), bytes));
  out.resize(p.grid_cols);
  ToFloats(p.scales.type, bytes, out);
  for (float& scale : out) scale = p.divides ? scale / p.factor : scale * p.factor;
  return OkStatus();
}

Status ReadRow(const ModelFile& model, const PackedRows& p, std::int64_t row,
               std::span<float> out) {
  std::vector<float> scales;
  RETURN_IF_ERROR(ReadScales(model, p, row, scales));
  std::vector<std::byte> codes(p.cols * p.bits / 8);
  RETURN_IF_ERROR(model.files[p.codes.file]->ReadAt(p.codes.offset() + row * codes.size(), codes));
  for (std::int64_t first = 0; first < p.cols; first += p.block_cols) {
    const std::int64_t end = std::min(first + p.block_cols, p.cols);
    const float scale = scales[first / p.block_cols];
    for (std::int64_t col = first; col < end; ++col) {
      const int byte = std::to_integer<int>(codes[p.bits == 8 ? col : col / 2]),
                code = p.bits == 8 ? byte : byte >> (col % 2 * 4) & 15;
      out[col] = (*p.values)[code] * scale;
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
