// The distance of two distributions, and how often draws by the same random numbers agree.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "engine/sampling/distribution.h"

namespace thermocline::sampling {

// A token that is possible in either distribution; lists ascend by token.
struct Beside {
  int token;
  double p, q;
};
inline std::vector<Beside> SideBySide(const Distribution& p, const Distribution& q) {
  std::vector<Beside> all;
  all.reserve(p.size() + q.size());
  for (std::size_t i = 0; i < p.size(); ++i)
    all.push_back({p.tokens[i], p.weights[i] / p.total, 0});
  for (std::size_t i = 0; i < q.size(); ++i)
    all.push_back({q.tokens[i], 0, q.weights[i] / q.total});
  std::sort(all.begin(), all.end(),
            [](const Beside& a, const Beside& b) { return a.token < b.token; });
  std::vector<Beside> out;
  out.reserve(all.size());
  for (const Beside& one : all) {
    if (out.empty() || out.back().token != one.token) {
      out.push_back(one);
    } else {
      out.back().p += one.p;
      out.back().q += one.q;
    }
  }
  return out;
}

// 1 - the probability that rejection accepts.
inline double TotalVariation(const std::vector<Beside>& all) {
  double sum = 0;
  for (const Beside& both : all) sum += std::abs(both.p - both.q) / 2;
  return sum;
}

// The probability that SeededRandomSource picks `token` from both: it wins both races if all others
// have E_j >= E_i max(p_j / p_i, q_j / q_i), so it is 1 / sum over j of max(p_j / p_i, q_j / q_i).
inline double SameTokenIs(const Distribution& p, const Distribution& q, int token) {
  const double p_i = p.Probability(token), q_i = q.Probability(token);
  if (p_i == 0 || q_i == 0) return 0;
  double sum = 0;
  for (const Beside& j : SideBySide(p, q)) sum += std::max(j.p / p_i, j.q / q_i);
  return 1 / sum;
}

// The probability that both picks are the same token: the sum of these. At least (1 - TV) / (1 +
// TV), and at most 1 - TV. Source: Daliri et al. 2025.
inline double SameToken(std::vector<Beside> both) {
  std::sort(both.begin(), both.end(),
            [](const Beside& a, const Beside& b) { return a.p * b.q < b.p * a.q; });
  double p_above = 1, q_below = 0, sum = 0;  // p of tokens with a larger p / q, q of the others
  for (const Beside& i : both) {
    p_above -= i.p;
    q_below += i.q;
    if (i.p > 0 && i.q > 0) sum += 1 / (std::max(p_above, 0.0) / i.p + q_below / i.q);
  }
  return sum;
}

}  // namespace thermocline::sampling
