// Random floats, and random rows of every type.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/op_table.h"

namespace thermocline::kernels {

inline std::vector<float> RandomFloats(std::size_t n, unsigned seed, float scale = 1.0F) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0, scale);
  std::vector<float> out(n);
  for (float& x : out) x = normal(generator);
  return out;
}

// The offsets of a block's f16 scales.
inline std::vector<int> ScaleOffsets(DType type) {
  switch (type) {
    case DType::kQ4_1:
    case DType::kQ5_1:
    case DType::kQ4_K:
    case DType::kQ5_K:
      return {0, 2};
    case DType::kQ6_K:
      return {208};
    case DType::kQ2_K:
      return {80, 82};
    case DType::kQ3_K:
      return {108};
    case DType::kMXFP4:
      return {};
    case DType::kTQ2_0:
      return {64};
    default:
      return {0};
  }
}

// GGUF rows of `type` that are valid whatever the bytes: random quants, scales near `scale`.
inline std::vector<std::uint8_t> RandomRows(DType type, int rows, int cols, unsigned seed) {
  std::mt19937 generator(seed);
  std::vector<std::uint8_t> out(static_cast<std::size_t>(rows) * RowBytes(type, cols));
  if (!Traits(type).quantized) {
    const auto values =
        RandomFloats(static_cast<std::size_t>(rows) * static_cast<std::size_t>(cols), seed);
    for (int r = 0; r < rows; ++r)
      QuantizeRow(type, values.data() + r * cols, cols,
                  out.data() + static_cast<std::size_t>(r) * RowBytes(type, cols));
    return out;
  }
  for (auto& byte : out) byte = static_cast<std::uint8_t>(generator());
  const auto block_bytes = static_cast<std::size_t>(Traits(type).block_bytes);
  for (std::size_t block = 0; block < out.size(); block += block_bytes) {
    if (type == DType::kMXFP4) out[block] = static_cast<std::uint8_t>(118 + generator() % 8);
    for (const int at : ScaleOffsets(type)) {
      const std::uint16_t half =
          FloatToHalf(0.01F + 0.0001F * static_cast<float>(generator() % 100));
      std::memcpy(out.data() + block + at, &half, 2);
    }
  }
  return out;
}

inline std::vector<std::uint8_t> Pack(DType type, const std::vector<std::uint8_t>& rows,
                                      int num_rows, int cols) {
  std::vector<std::uint8_t> out(PackedBytes(type, num_rows, cols));
  for (int panel = 0; panel < NumPanels(num_rows); ++panel) {
    const int first = panel * kPanelRows;
    PackPanel(type, rows.data() + static_cast<std::size_t>(first) * RowBytes(type, cols),
              std::min(kPanelRows, num_rows - first), cols,
              out.data() + static_cast<std::size_t>(panel) * PanelBytes(type, cols));
  }
  return out;
}

// All rows in the layout of a RowMatrix.
inline std::vector<std::uint8_t> PackAllRows(DType type, const std::vector<std::uint8_t>& gguf,
                                             int rows, int cols) {
  std::vector<std::uint8_t> out(gguf.size());
  for (int r = 0; r < rows; r += kPanelRows) {
    const std::size_t at = static_cast<std::size_t>(r) * RowBytes(type, cols);
    PackRows(type, gguf.data() + at, std::min(kPanelRows, rows - r), cols, out.data() + at);
  }
  return out;
}

}  // namespace thermocline::kernels
