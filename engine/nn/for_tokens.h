// A loop over the tokens of a step.
#pragma once

#include "engine/base/worker_pool.h"

namespace thermocline::nn {

// Calls body(token) for each token, in parallel where there are several.
template <typename Body>
void ForTokens(base::WorkerPool& pool, int tokens, const Body& body) {
  // Below this, waking the other threads costs more than they save.
  constexpr int kTokensInParallel = 4;
  if (tokens >= kTokensInParallel) {
    pool.Run(tokens, [&](int token, int) { body(token); });
  } else {
    for (int token = 0; token < tokens; ++token) body(token);
  }
}

// x [n] *= scale.
inline void Scale(double scale, float* x, int n) {
  if (scale == 1) return;
  const auto factor = static_cast<float>(scale);
  for (int i = 0; i < n; ++i) x[i] *= factor;
}

}  // namespace thermocline::nn
