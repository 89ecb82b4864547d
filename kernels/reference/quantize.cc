// Scalar oracle of quantised activations (kernels/types.h).
#include <cmath>

#include "kernels/reference/reference.h"

namespace thermocline::kernels::reference {
namespace {

// The sum of 16 columns (kernels/types.h).
std::int32_t PairSum(const std::int8_t* q) {
  int low = 0, high = 0;
  for (int i = 0; i < 16; i += 4) {
    low += q[i] + q[i + 1];
    high += q[i + 2] + q[i + 3];
  }
  return (low & 0xFFFF) | high * 0x10000;
}

}  // namespace

void Quantize(const QuantizeParams& p) {
  for (int b = 0; b < p.n / kActivationBlock; ++b) {
    const float* x = p.x + b * kActivationBlock;
    float max = 0;
    for (int i = 0; i < kActivationBlock; ++i) max = std::fabs(x[i]) > max ? std::fabs(x[i]) : max;
    const float inverse = max > kActivationMin ? 127.0F / max : 0.0F;
    std::int32_t sum = 0;
    for (int i = 0; i < kActivationBlock; ++i) {
      const int q = static_cast<int>(std::nearbyint(x[i] * inverse));
      p.q[b * kActivationBlock + i] = static_cast<std::int8_t>(q);
      sum += q;
      if (i == 15) p.half_sum[b] = sum;
    }
    for (int half = 0; half < 2; ++half)
      p.pair_sum[2 * b + half] = PairSum(p.q + b * kActivationBlock + 16 * half);
    p.scale[b] = max / 127.0F;
    p.sum[b] = sum;
    p.scaled_sum[b] = Scaled(p.scale[b], sum);
  }
}

}  // namespace thermocline::kernels::reference
