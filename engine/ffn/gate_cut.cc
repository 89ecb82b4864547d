#include "engine/ffn/gate_cut.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace thermocline::ffn {
namespace {

// The sum of term(gates[k]), in as many chains as a vector has lanes.
template <typename Term>
double Sum(const float* gates, int n, const Term& term) {
  constexpr int kChains = 8;
  double chains[kChains] = {};
  int k = 0;
  for (; k + kChains <= n; k += kChains)
    for (int c = 0; c < kChains; ++c) chains[c] += term(double{gates[k + c]});
  for (; k < n; ++k) chains[k % kChains] += term(double{gates[k]});
  return std::accumulate(chains, chains + kChains, 0.0);
}

}  // namespace

void CutGates(double cut, float* gates, int n) {
  const double mean = Sum(gates, n, [](double gate) { return gate; }) / n;
  const double squares =
      Sum(gates, n, [mean](double gate) { return (gate - mean) * (gate - mean); });
  const auto least = static_cast<float>(mean + cut * std::sqrt(squares / n));
  for (int k = 0; k < n; ++k) gates[k] = std::max(0.0F, gates[k] - least);
}

}  // namespace thermocline::ffn
