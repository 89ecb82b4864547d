// The trade-off of one row's threshold: for each threshold, the number of tokens predicted active
// and the worth of the active tokens among them (caught).
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

namespace thermocline::offline {

// Const after construction.
class RowCurve {
 public:
  // A token for which the row is active.
  struct Active {
    std::int32_t score;
    float worth;  // its mass, or 1
  };
  // A candidate threshold with its results.
  struct Point {
    std::int32_t threshold;
    double predicted, caught;  // tokens; worth
  };

  RowCurve() = default;
  // `scores`: of all tokens. `active`: the active ones among these, in any order.
  RowCurve(std::vector<std::int32_t> scores, std::vector<Active> active);

  std::size_t active_tokens() const { return active_.size(); }
  double worth() const { return caught_.empty() ? 0 : caught_.back(); }
  // A threshold above every score: predicts no token.
  std::int32_t never() const;

  std::int64_t Predicted(std::int64_t threshold) const;
  double Caught(std::int64_t threshold) const;  // worth
  std::int64_t CaughtTokens(std::int64_t threshold) const;

  // The highest threshold that catches at least `wanted` worth. Requires: there is one.
  std::int32_t ThresholdFor(double wanted) const;
  // The threshold that maximises price * caught - predicted.
  std::int32_t Best(double price) const;

 private:
  void MakeHull();

  std::vector<std::int32_t> scores_;  // of all tokens, descending
  std::vector<std::int32_t> active_;  // of active tokens, descending
  std::vector<double> caught_;        // total worth of the first i + 1 active tokens
  std::vector<Point> hull_;           // upper hull, from no prediction on; slopes decrease
};

}  // namespace thermocline::offline
