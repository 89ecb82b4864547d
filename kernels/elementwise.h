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

// y = (x - mean) / sqrt(mean((x - mean)^2) + eps) * weight + bias. Sums as in RmsNorm.
struct LayerNormParams {
  const float* x = nullptr;       // [n]
  const float* weight = nullptr;  // [n]
  const float* bias = nullptr;    // [n] or null
  int n = 0;
  float eps = 0;
  float* out = nullptr;  // [n], may be x
};

// Rotates pairs of each head's dimensions by the token's angles: (2i, 2i+1), or (i, i + rope_dim/2)
// if `halves`. Dimensions from rope_dim on stay.
struct RopeParams {
  float* x = nullptr;  // [heads, head_dim], in place
  int heads = 0;
  int head_dim = 0;
  int rope_dim = 0;            // even, <= head_dim
  const float* cos = nullptr;  // [rope_dim / 2] of this position
  const float* sin = nullptr;
  bool halves = false;
};

// kFatRelu keeps x where x >= threshold, else 0. kRelu2 is relu(x)^2. kGelu is x Phi(x), kGeluTanh
// its approximation with tanh. kDRelu is relu(gate) * relu(up), kClampedSwiglu is defined below,
// the others are act(gate) * up.
enum class GateActivation : std::uint8_t {
  kSilu,
  kRelu,
  kFatRelu,
  kDRelu,
  kRelu2,
  kGelu,
  kGeluTanh,
  kClampedSwiglu,
  kXielu
};

// kClampedSwiglu, with both limits and the slope that gpt-oss has:
// g sigmoid(1.702 g) (u + 1), g = min(gate, 7), u = clamp(up, -7, 7).
inline constexpr float kSwigluLimit = 7.0F, kSwigluSlope = 1.702F;

// kXielu: alpha_p x^2 + beta x for x > 0, else alpha_n (exp(min(x, eps)) - 1 - x) + beta x.
struct Xielu {
  float alpha_p = 0, alpha_n = 0, beta = 0, eps = 0;
};

// out = act(gate) * up, or act(gate) where there is no up.
struct GatedParams {
  const float* gate = nullptr;  // [n]
  const float* up = nullptr;    // [n] or null
  int n = 0;
  GateActivation activation = GateActivation::kSilu;
  float threshold = 0;
  float* out = nullptr;  // [n], may be gate
  Xielu xielu = {};
};

}  // namespace thermocline::kernels
