// Stores K and V in their blocks, and merges and finishes states of attention, for every backend.
#include "kernels/attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/layout/panel_view.h"

namespace thermocline::kernels {
namespace {

constexpr int kGroup = kActivationBlock;  // dimensions that share a Q8_0 scale

void StoreHalf(std::uint8_t* p, float value) {
  const std::uint16_t half = FloatToHalf(value);
  std::memcpy(p, &half, 2);
}

// A group as a block of Q4_0: f16 d, then bytes whose low nibbles are the first half.
struct Q4Block {
  std::uint8_t bytes[2 + kGroup / 2];

  explicit Q4Block(const float* x) { QuantizeRow(DType::kQ4_0, x, kGroup, bytes); }
  int Level(int i) const {
    const int byte = bytes[2 + i % (kGroup / 2)];
    return i < kGroup / 2 ? byte & 15 : byte >> 4;
  }
};

void StoreKeyQ4_0(const StoreKvParams& p) {
  std::uint8_t* block = p.keys + p.slot / kPanelRows * PanelBytes(DType::kQ4_0, p.head_dim);
  const int lane = p.slot % kPanelRows;
  for (int at = 0; at < p.head_dim; at += kGroup, block += PanelBytes(DType::kQ4_0, kGroup)) {
    const Q4Block q(p.key + at);
    std::memcpy(block + 2 * lane, q.bytes, 2);
    for (int quad = 0; quad < 4; ++quad)
      std::memcpy(block + 32 + quad * kQuadBytes + 4 * lane, q.bytes + 2 + 4 * quad, 4);
  }
}

void StoreValueQ4_0(const StoreKvParams& p) {
  std::uint8_t* levels = p.values + 2 * kKvBlock * (p.head_dim / kGroup);
  constexpr int kHalf = kPanelRows / 2;
  for (int at = 0; at < p.head_dim; at += kGroup) {
    const Q4Block q(p.value + at);
    std::memcpy(p.values + 2 * (at / kGroup * kKvBlock + p.slot), q.bytes, 2);
    for (int panel = 0; panel < kGroup; panel += kPanelRows) {
      std::uint8_t* out = levels + ((at + panel) / kPanelRows * kKvBlock + p.slot) * kHalf;
      for (int i = 0; i < kHalf; ++i)
        out[i] = static_cast<std::uint8_t>(q.Level(panel + i) | q.Level(panel + kHalf + i) << 4);
    }
  }
}

// Levels of n values and their f16 scale.
float QuantizeGroup(const float* x, int n, std::int8_t* q) {
  float max = 0;
  for (int i = 0; i < n; ++i) max = std::max(max, std::fabs(x[i]));
  const float scale = HalfToFloat(FloatToHalf(max / 127.0F));
  const float inverse = scale > 0 ? 1.0F / scale : 0.0F;
  for (int i = 0; i < n; ++i) {
    const float level = std::nearbyint(x[i] * inverse);
    q[i] = static_cast<std::int8_t>(std::clamp(level, -127.0F, 127.0F));
  }
  return scale;
}

void StoreFloat(KvType type, std::uint8_t* p, float value) {
  if (type == KvType::kF32)
    std::memcpy(p, &value, 4);
  else
    StoreHalf(p, value);
}

void StoreKeyFloat(const StoreKvParams& p) {
  const int bytes = p.type == KvType::kF32 ? 4 : 2;
  std::uint8_t* panel = p.keys + p.slot / kPanelRows * PanelBytes(KeyType(p.type), p.head_dim);
  for (int i = 0; i < p.head_dim; ++i)
    StoreFloat(p.type, panel + (i * kPanelRows + p.slot % kPanelRows) * bytes, p.key[i]);
}

void StoreKeyQ8_0(const StoreKvParams& p) {
  std::uint8_t* block = p.keys + p.slot / kPanelRows * PanelBytes(DType::kQ8_0, p.head_dim);
  const int lane = p.slot % kPanelRows;
  for (int at = 0; at < p.head_dim; at += kGroup, block += PanelBytes(DType::kQ8_0, kGroup)) {
    std::int8_t q[kGroup];
    StoreHalf(block + 2 * lane, QuantizeGroup(p.key + at, kGroup, q));
    for (int i = 0; i < kGroup; ++i) {
      block[32 + i / 4 * kQuadBytes + lane * 4 + i % 4] = static_cast<std::uint8_t>(q[i] + 128);
    }
  }
}

void StoreValueFloat(const StoreKvParams& p) {
  const int bytes = p.type == KvType::kF32 ? 4 : 2;
  for (int i = 0; i < p.head_dim; ++i) {
    const int row = i / kPanelRows * kKvBlock + p.slot;
    StoreFloat(p.type, p.values + (row * kPanelRows + i % kPanelRows) * bytes, p.value[i]);
  }
}

void StoreValueQ8_0(const StoreKvParams& p) {
  std::uint8_t* levels = p.values + 2 * kKvBlock * (p.head_dim / kGroup);
  for (int at = 0; at < p.head_dim; at += kGroup) {
    std::int8_t q[kGroup];
    StoreHalf(p.values + 2 * (at / kGroup * kKvBlock + p.slot),
              QuantizeGroup(p.value + at, kGroup, q));
    for (int i = 0; i < kGroup; ++i) {
      const int row = (at + i) / kPanelRows * kKvBlock + p.slot;
      levels[row * kPanelRows + i % kPanelRows] = q[i];
    }
  }
}

// Sixteen dimensions of four positions are a quad.
void StoreValueQ8(const StoreKvParams& p) {
  std::int8_t q[kHeadDimMax];
  StoreHalf(p.values + 2 * p.slot, QuantizeGroup(p.value, p.head_dim, q));
  std::uint8_t* levels = p.values + 2 * kKvBlock + p.slot / 4 * kQuadBytes + p.slot % 4;
  for (int i = 0; i < p.head_dim; ++i)
    levels[i / kPanelRows * kPanelRows * kKvBlock + i % kPanelRows * 4] =
        static_cast<std::uint8_t>(q[i]);
}

}  // namespace

void StoreKeyAndValue(const StoreKvParams& p) {
  if (p.type == KvType::kQ8_0 || p.type == KvType::kQ8) {
    StoreKeyQ8_0(p);
    p.type == KvType::kQ8 ? StoreValueQ8(p) : StoreValueQ8_0(p);
  } else if (p.type == KvType::kQ4_0) {
    StoreKeyQ4_0(p);
    StoreValueQ4_0(p);
  } else {
    StoreKeyFloat(p);
    StoreValueFloat(p);
  }
}

namespace {

// out = out * a + more * b. Sixteen at a time, because g++ 12 makes vectors of a loop only if it
// knows the count.
void AddScaled(const float* __restrict more, float a, float b, int n, float* __restrict out) {
  constexpr int kAtOnce = 16;
  int i = 0;
  for (; i + kAtOnce <= n; i += kAtOnce) {
    for (int j = 0; j < kAtOnce; ++j) out[i + j] = out[i + j] * a + more[i + j] * b;
  }
  for (; i < n; ++i) out[i] = out[i] * a + more[i] * b;
}

}  // namespace

void MergeAttention(const AttentionState& part, int group, int head_dim,
                    const AttentionState& into) {
  for (int g = 0; g < group; ++g) {
    const float max = std::max(part.max[g], into.max[g]);
    const float a = std::exp(into.max[g] - max), b = std::exp(part.max[g] - max);
    into.max[g] = max;
    into.total[g] = into.total[g] * a + part.total[g] * b;
    float* out = into.out + StartOf(g, head_dim);
    const float* more = part.out + StartOf(g, head_dim);
    AddScaled(more, a, b, head_dim, out);
  }
}

void CopyAttention(const AttentionState& part, int group, int head_dim,
                   const AttentionState& into) {
  std::copy_n(part.max, group, into.max);
  std::copy_n(part.total, group, into.total);
  std::copy_n(part.out, StartOf(group, head_dim), into.out);
}

void FinishAttention(const AttentionState& state, int group, int head_dim, const float* sinks,
                     float* out) {
  for (int g = 0; g < group; ++g) {
    float inverse = 1.0F / state.total[g];
    if (sinks != nullptr) {
      const float max = std::fmax(state.max[g], sinks[g]), share = std::exp(state.max[g] - max);
      inverse = share / (state.total[g] * share + std::exp(sinks[g] - max));
    }
    const std::ptrdiff_t at = StartOf(g, head_dim);
    for (int i = 0; i < head_dim; ++i) out[at + i] = state.out[at + i] * inverse;
  }
}

}  // namespace thermocline::kernels
