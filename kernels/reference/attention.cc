// Scalar oracle of attention.h.
#include "kernels/attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/layout/panel_view.h"
#include "kernels/reference/reference.h"

namespace thermocline::kernels::reference {
namespace {

constexpr int kGroup = kActivationBlock;  // dimensions that share a Q8_0 scale

float LoadFloat(KvType type, const std::uint8_t* p) {
  float value;
  if (type != KvType::kF32) return HalfToFloat(Load16(p));
  std::memcpy(&value, p, 4);
  return value;
}

float KeyAt(const AttentionParams& p, int position, int dim) {
  const DType type = KeyType(p.type);
  const int lane = position % kPanelRows, panel = position % kKvBlock / kPanelRows;
  const std::uint8_t* keys =
      p.blocks[position / kKvBlock] + p.keys_offset + panel * PanelBytes(type, p.head_dim);
  if (!IsQuantized(p.type))
    return LoadFloat(p.type, keys + (dim * kPanelRows + lane) * Traits(type).block_bytes);
  keys += dim / kGroup * PanelBytes(type, kGroup);
  return Scaled(PanelHalf(keys, 0, lane),
                PanelLevel(type, keys, lane, dim % kGroup) - LayoutOf(type).offset);
}

float ValueAt(const AttentionParams& p, int position, int dim) {
  const std::uint8_t* values = p.blocks[position / kKvBlock] + p.values_offset;
  const int slot = position % kKvBlock, row = dim / kPanelRows * kKvBlock + slot;
  const int at = row * kPanelRows + dim % kPanelRows;
  if (!IsQuantized(p.type))
    return LoadFloat(p.type, values + at * Traits(KeyType(p.type)).block_bytes);
  const float scale = HalfToFloat(Load16(values + 2 * (dim / kGroup * kKvBlock + slot)));
  const std::uint8_t* levels = values + 2 * kKvBlock * (p.head_dim / kGroup);
  if (p.type == KvType::kQ8_0) return Scaled(scale, static_cast<std::int8_t>(levels[at]));
  constexpr int kHalf = kPanelRows / 2;
  const int byte = levels[row * kHalf + dim % kHalf];
  return Scaled(scale, (dim % kPanelRows < kHalf ? byte & 15 : byte >> 4) - 8);
}

float Score(const AttentionParams& p, int row, int position) {
  const std::size_t at = StartOf(row, p.head_dim);
  float dot = 0;
  for (int i = 0; i < p.head_dim; ++i) {
    const std::size_t j = at + i;
    const float q = !IsQuantized(p.type) ? p.q.x[j] : Scaled(p.q.scale[j / kGroup], p.q.q[j]);
    dot += q * KeyAt(p, position, i);
  }
  return p.score_cap > 0 ? p.score_cap * std::tanh(dot / p.score_cap) : dot;
}

}  // namespace

void Attention(const AttentionParams& p) {
  for (int row = 0; row < p.tokens * p.group; ++row) {
    const auto [begin, end] = p.spans[row / p.group];
    float max = -INFINITY, total = 0;
    for (int s = begin; s < end; ++s) max = std::max(max, Score(p, row, s));
    float* out = p.state.out + StartOf(row, p.head_dim);
    std::fill_n(out, p.head_dim, 0.0F);
    for (int s = begin; s < end; ++s) {
      const float weight = std::exp(Score(p, row, s) - max);
      total += weight;
      for (int i = 0; i < p.head_dim; ++i) out[i] += weight * ValueAt(p, s, i);
    }
    p.state.max[row] = max;
    p.state.total[row] = total;
  }
}

}  // namespace thermocline::kernels::reference
