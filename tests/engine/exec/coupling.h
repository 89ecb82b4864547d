// How alike two distributions are, and how often draws by the same numbers are the same token.
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "engine/exec/distribution.h"

namespace thermocline::exec {

// Probabilities of every token that may come from either.
inline std::map<int, std::pair<double, double>> Beside(const Distribution& p,
                                                       const Distribution& q) {
  std::map<int, std::pair<double, double>> out;
  for (std::size_t i = 0; i < p.size(); ++i) out[p.tokens[i]].first = p.weights[i] / p.total;
  for (std::size_t i = 0; i < q.size(); ++i) out[q.tokens[i]].second = q.weights[i] / q.total;
  return out;
}

// 1 - the probability that rejection accepts.
inline double TotalVariation(const Distribution& p, const Distribution& q) {
  double sum = 0;
  for (const auto& [token, both] : Beside(p, q)) sum += std::abs(both.first - both.second) / 2;
  return sum;
}

// The probability that SeededChance picks the same token from both: token i wins both races if
// E_j >= E_i max(p_j / p_i, q_j / q_i) for all j, so it is
//   sum over i of 1 / sum over j of max(p_j / p_i, q_j / q_i)
// and at least (1 - TV) / (1 + TV). Source: Daliri et al. 2025.
inline double SameToken(const Distribution& p, const Distribution& q) {
  std::vector<std::pair<double, double>> both;  // ordered by p / q
  for (const auto& [token, pair] : Beside(p, q)) both.push_back(pair);
  std::sort(both.begin(), both.end(),
            [](const auto& a, const auto& b) { return a.first * b.second < b.first * a.second; });
  double p_above = 1, q_below = 0, sum = 0;  // p of those behind i, q of those up to it
  for (const auto& [p_i, q_i] : both) {
    p_above -= p_i;
    q_below += q_i;
    if (p_i > 0 && q_i > 0) sum += 1 / (std::max(p_above, 0.0) / p_i + q_below / q_i);
  }
  return sum;
}

}  // namespace thermocline::exec
