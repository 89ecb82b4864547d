// Scalar oracle of recurrence.h.
#include <cmath>

#include "kernels/reference/reference.h"

namespace thermocline::kernels::reference {

void ShortConv(const ShortConvParams& p) {
  for (int c = 0; c < p.n; ++c) {
    float sum = p.bias != nullptr ? p.bias[c] : 0.0F;
    for (int t = 0; t < p.taps; ++t) sum = std::fma(p.weight[t * p.n + c], p.rows[t][c], sum);
    p.out[c] = sum;
  }
}

void Recurrence(const RecurrenceParams& p) {
  for (int t = 0; t < p.tokens; ++t) {
    const float *k = p.k + t * p.key_stride, *q = p.q + t * p.key_stride;
    const float decay = p.decay[t * p.gate_stride];
    for (int c = 0; c < p.cols; ++c) {
      float e = p.v[t * p.value_stride + c];
      if (p.beta != nullptr) {
        float chains[2] = {};
        for (int r = 0; r < p.rows; ++r)
          chains[r % 2] = std::fma(p.state[r * p.state_stride + c], k[r], chains[r % 2]);
        e = (e - decay * (chains[0] + chains[1])) * p.beta[t * p.gate_stride];
      }
      float chains[2] = {};
      for (int r = 0; r < p.rows; ++r) {
        float& s = p.state[r * p.state_stride + c];
        s = std::fma(k[r], e, decay * s);
        if (p.out != nullptr) chains[r % 2] = std::fma(s, q[r], chains[r % 2]);
      }
      if (p.out != nullptr) p.out[t * p.out_stride + c] = chains[0] + chains[1];
    }
  }
}

}  // namespace thermocline::kernels::reference
