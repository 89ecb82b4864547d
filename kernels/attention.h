// Attention of one head for one token over the cached tokens:
//   p = softmax(scale * K q),  out = sum_s p[s] V[s].
#pragma once

#include <cstdint>

namespace thermocline::kernels {

struct AttentionParams {
  const float* q = nullptr;          // [head_dim] f32
  const std::uint16_t* k = nullptr;  // [S, stride] f16; columns head_dim.. are zero
  const std::uint16_t* v = nullptr;  // [S, stride] f16
  int cached_tokens = 0;             // S >= 1
  int head_dim = 0;                  // Dh <= 512
  int stride = 0;                    // Dh rounded up to 16
  float scale = 1.0F;                // usually 1 / sqrt(Dh)
  float* scores = nullptr;           // [S rounded up to 16] scratch
  float* out = nullptr;              // [head_dim] f32
};

inline constexpr int kHeadDimMax = 512;

}  // namespace thermocline::kernels
