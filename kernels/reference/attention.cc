// Scalar oracle of attention.h.
#include "kernels/attention.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
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

// A score, of the product of a row's query and a position's key.
float Finished(const AttentionParams& p, int row, int position, float product) {
  if (p.slopes != nullptr)
    product -= p.slopes[row % p.group] *
               static_cast<float>(std::abs(p.positions[row / p.group] - position));
  return p.score_cap > 0 ? p.score_cap * std::tanh(product / p.score_cap) : product;
}

float Score(const AttentionParams& p, int row, int position) {
  const std::size_t at = StartOf(row, p.head_dim);
  float dot = 0;
  for (int i = 0; i < p.head_dim; ++i) {
    const std::size_t j = at + i;
    const float q = !IsQuantized(p.type) ? p.q.x[j] : Scaled(p.q.scale[j / kGroup], p.q.q[j]);
    dot += q * KeyAt(p, position, i);
  }
  return Finished(p, row, position, dot);
}

// Type kQ8: the numbers of the kernels to the bit, one position or dimension at a time
// (kernels/cpu/attention_bytes.inl.h).

// exp as the kernels compute it.
float KernelExp(float x) {
  const float t = std::fmax(x * 1.44269504F, -125.0F), n = std::nearbyint(t), f = t - n;
  float p = std::fma(0.009582853F, f, 0.055906426F);
  for (const float c : {0.24024099F, 0.69312418F, 1.0F}) p = std::fma(p, f, c);
  return p * std::ldexp(1.0F, static_cast<int>(n));
}

// The kernels' order: halves are added until one number is left.
float SumOfLanes(float (&lanes)[16]) {
  for (int half = 8; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  return lanes[0];
}

float ByteScore(const AttentionParams& p, int row, int position) {
  const int lane = position % kPanelRows, panel = position % kKvBlock / kPanelRows;
  const std::uint8_t* keys =
      p.blocks[position / kKvBlock] + p.keys_offset + panel * PanelBytes(DType::kQ8_0, p.head_dim);
  float score = 0;
  for (int g = 0; g < p.head_dim / kGroup; ++g) {
    const std::uint8_t* group = keys + g * PanelBytes(DType::kQ8_0, kGroup);
    const std::size_t at = StartOf(row, p.head_dim) + g * kGroup;
    int dot = 0;
    for (int i = 0; i < kGroup; ++i)
      dot += (PanelLevel(DType::kQ8_0, group, lane, i) - 128) * p.q.q[at + i];
    score = std::fma(PanelHalf(group, 0, lane) * p.q.scale[at / kGroup], static_cast<float>(dot),
                     score);
  }
  return Finished(p, row, position, score);
}

// A row's softmax over positions [begin, end) of a block.
struct ByteBlock {
  float max = -3e38F, total = 0, weight = 0;
  int levels[kKvBlock] = {};

  ByteBlock(const AttentionParams& p, int row, int begin, int end) {
    const std::uint8_t* scales = p.blocks[begin / kKvBlock] + p.values_offset;
    float scores[kKvBlock], weights[kKvBlock] = {}, lanes[4][16] = {};
    for (int s = begin; s < end; ++s)
      max = std::max(max, scores[s % kKvBlock] = ByteScore(p, row, s));
    for (int at = begin % kKvBlock; at < begin % kKvBlock + end - begin; ++at) {
      const float e = lanes[at / 16][at % 16] = KernelExp(scores[at] - max);
      weights[at] = e * HalfToFloat(Load16(scales + 2 * at));
      weight = std::max(weight, weights[at]);
    }
    for (int i = 0; i < 16; ++i)
      lanes[0][i] = (lanes[0][i] + lanes[1][i]) + (lanes[2][i] + lanes[3][i]);
    total = SumOfLanes(lanes[0]);
    const float level = weight > 0 ? 254 / weight : 0;
    for (int at = 0; at < kKvBlock; ++at)
      levels[at] = static_cast<int>(std::nearbyint(weights[at] * level));
  }
};

int ByteValueAt(const AttentionParams& p, int block, int at, int dim) {
  const std::uint8_t* levels = p.blocks[block] + p.values_offset + 2 * kKvBlock;
  const int quad = dim / kPanelRows * (kKvBlock / 4) + at / 4;
  return static_cast<std::int8_t>(levels[quad * kQuadBytes + dim % kPanelRows * 4 + at % 4]);
}

void AddByteBlock(const AttentionParams& p, const ByteBlock& b, int row, int block) {
  float &max = p.state.max[row], &total = p.state.total[row];
  const float new_max = std::max(max, b.max);
  const float older = KernelExp(max - new_max), factor = KernelExp(b.max - new_max);
  total = std::fma(total, older, factor * b.total);
  max = new_max;
  const float scale = factor * (b.weight * (1.0F / 254));
  float* out = p.state.out + StartOf(row, p.head_dim);
  for (int i = 0; i < p.head_dim; ++i) {
    int sum = 0;
    for (int at = 0; at < kKvBlock; ++at) {
      if (b.levels[at] != 0) sum += b.levels[at] * ByteValueAt(p, block, at, i);
    }
    out[i] = std::fma(out[i], older, static_cast<float>(sum) * scale);
  }
}

void AttendBytes(const AttentionParams& p, int row) {
  p.state.max[row] = -3e38F;
  p.state.total[row] = 0;
  std::fill_n(p.state.out + StartOf(row, p.head_dim), p.head_dim, 0.0F);
  const auto [begin, end] = p.spans[row / p.group];
  for (int s = begin; s < end;) {
    const int block = s / kKvBlock, next = std::min(end, (block + 1) * kKvBlock);
    AddByteBlock(p, ByteBlock(p, row, s, next), row, block);
    s = next;
  }
}

float OriginProduct(const AttentionParams& p, int row) {
  float lanes[16] = {};
  for (int i = 0; i < p.head_dim; ++i)
    lanes[i % 16] = std::fma(p.q.x[StartOf(row, p.head_dim) + i], p.key_origin[i], lanes[i % 16]);
  return SumOfLanes(lanes);
}

void AttendFloats(const AttentionParams& p, int row) {
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

}  // namespace

void Attention(const AttentionParams& p) {
  for (int row = 0; row < p.tokens * p.group; ++row) {
    p.type == KvType::kQ8 ? AttendBytes(p, row) : AttendFloats(p, row);
    if (p.key_origin != nullptr) p.state.max[row] += OriginProduct(p, row);
  }
}

}  // namespace thermocline::kernels::reference
