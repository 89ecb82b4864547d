// Pearson's test of counts against probabilities, with its power computed in advance.
//
// Significance 1e-6: a correct program fails once in a million. Probabilities that are off by a
// total variation of tv have sum (p - p')^2 / p >= 4 tv^2 (Cauchy and Schwarz), so that the
// statistic of n draws is chi-square with a noncentrality of at least 4 n tv^2; its quantile of
// 0.01, by the normal approximation, is set against the critical value.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

namespace thermocline::sampling {

// The value that the statistic of `cells` cells exceeds with a probability of at most 1e-6. Source:
// Wilson and Hilferty 1931.
inline double ChiSquareCritical(int cells) {
  const double df = cells - 1, z = 4.7534;  // z: of the normal distribution
  return df * std::pow(1 - 2 / (9 * df) + z * std::sqrt(2 / (9 * df)), 3);
}

// The draws that show a total variation of `tv` with a probability of 0.99.
inline int DrawsToShow(double tv, int cells) {
  const double df = cells - 1, z = 2.3263;
  double noncentrality = 0;
  while (df + noncentrality - z * std::sqrt(2 * (df + 2 * noncentrality)) <
         ChiSquareCritical(cells))
    noncentrality += 0.5;
  return static_cast<int>(std::ceil(noncentrality / (4 * tv * tv)));
}

struct ChiSquareTest {
  double statistic = 0;
  int cells = 0;
  bool passes() const { return cells < 2 || statistic <= ChiSquareCritical(cells); }
};

// Cells with fewer than 5 expected draws are merged. A draw in a cell of probability 0 fails the
// test.
inline ChiSquareTest ChiSquare(const std::vector<int>& counts,
                               const std::vector<double>& probabilities) {
  double draws = 0, few = 0, few_expected = 0;
  for (const int count : counts) draws += count;
  ChiSquareTest out;
  const auto add = [&out](double count, double expected) {
    out.statistic += (count - expected) * (count - expected) / expected;
    ++out.cells;
  };
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const double expected = draws * probabilities[i];
    if (expected >= 5) {
      add(counts[i], expected);
      continue;
    }
    few += counts[i];
    few_expected += expected;
    if (probabilities[i] == 0 && counts[i] > 0) out = {1e300, 2};
  }
  if (few_expected > 0) add(few, few_expected);
  return out;
}

}  // namespace thermocline::sampling
