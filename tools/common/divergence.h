// The distance between two distributions of the next token.
#pragma once

#include <algorithm>
#include <cmath>
#include <span>

namespace thermocline::tools {

// The Kullback-Leibler divergence, in nats, of the distributions of two rows of logits.
inline double Divergence(std::span<const float> p, std::span<const float> q) {
  const auto log_total = [](std::span<const float> row) {
    const double max = *std::max_element(row.begin(), row.end());
    double total = 0;
    for (const float x : row) total += std::exp(x - max);
    return max + std::log(total);
  };
  const double p_total = log_total(p), q_total = log_total(q);
  double kl = 0;
  for (std::size_t i = 0; i < p.size(); ++i) {
    const double log_p = p[i] - p_total;
    kl += std::exp(log_p) * (log_p - (q[i] - q_total));
  }
  return std::max(0.0, kl);
}

}  // namespace thermocline::tools
