// The cut of a layer's gates, which leaves only the largest ones.
// Source: Gemma 3n's Gaussian top-k (model/altup.h).
#pragma once

namespace thermocline::ffn {

// gates[k] = max(0, gates[k] - (mean + cut * deviation)), over all [n] of a token. Sums in a fixed
// order.
void CutGates(double cut, float* gates, int n);

}  // namespace thermocline::ffn
