// The element-wise ops of a transformer layer.
#pragma once

#include <cstdint>

namespace thermocline::kernels {

// y = x / sqrt(mean(x^2) + eps) * weight. The sum runs in 16 chains (column mod 16), added
// pairwise.
struct RmsNormParams {
  const float* x = nullptr;       // [n]
  const float* weight = nullptr;  // [n]
  int n = 0;
  float eps = 0;
  float* out = nullptr;  // [n], may be x
};

// Rotates pairs (2i, 2i+1) of each head by the token's angles; dimensions from rope_dim on stay.
struct RopeParams {
  float* x = nullptr;  // [heads, head_dim], in place
  int heads = 0;
  int head_dim = 0;
  int rope_dim = 0;            // even, <= head_dim
  const float* cos = nullptr;  // [rope_dim / 2] of this position
  const float* sin = nullptr;
};

enum class GateActivation : std::uint8_t { kSilu, kRelu, kFatRelu };

// out = act(gate) * up; kFatRelu keeps gate where gate >= threshold, else 0.
struct GatedParams {
  const float* gate = nullptr;  // [n]
  const float* up = nullptr;    // [n]
  int n = 0;
  GateActivation activation = GateActivation::kSilu;
  float threshold = 0;
  float* out = nullptr;  // [n], may be gate
};

}  // namespace thermocline::kernels
