// The op tables this machine can run, and random inputs.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <vector>

#include "kernels/op_table.h"

namespace thermocline::kernels {

inline std::vector<const OpTable*> FastTables() {
  std::vector<const OpTable*> tables;
  for (const char* name : {"avx2", "avx512"}) {
    if (const OpTable* table = CpuOps(name)) tables.push_back(table);
  }
  return tables;
}

inline std::vector<float> RandomFloats(std::size_t n, unsigned seed, float scale = 1.0F) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0, scale);
  std::vector<float> out(n);
  for (float& x : out) x = normal(generator);
  return out;
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
  const std::size_t scale_at = type == DType::kQ6_K ? 208 : 0;
  for (std::size_t block = 0; block < out.size(); block += block_bytes) {
    const auto set = [&](std::size_t at) {
      const std::uint16_t half =
          FloatToHalf(0.01F + 0.0001F * static_cast<float>(generator() % 100));
      out[block + at] = static_cast<std::uint8_t>(half & 255);
      out[block + at + 1] = static_cast<std::uint8_t>(half >> 8);
    };
    set(scale_at);
    if (type == DType::kQ4_1) set(2);
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

}  // namespace thermocline::kernels
