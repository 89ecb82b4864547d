// Counts the predictions and hits of each threshold on one row's scores.
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
  // A token that activated the row.
  struct Active {
    std::int32_t score;
    float worth;  // its mass, or one
  };
  // A threshold at which the row could be operated.
  struct Point {
    std::int32_t threshold;
    double predicted, caught;  // tokens; worth
  };

  RowCurve() = default;
  // `scores` of all tokens, `active` of some of them, in any order.
  RowCurve(std::vector<std::int32_t> scores, std::vector<Active> active);

  std::size_t active_tokens() const { return active_.size(); }
  double worth() const { return caught_.empty() ? 0 : caught_.back(); }
  // Above every score: predicts nothing.
  std::int32_t never() const;

  std::int64_t Predicted(std::int64_t threshold) const;
  double Caught(std::int64_t threshold) const;  // worth
  std::int64_t CaughtTokens(std::int64_t threshold) const;

  // The highest threshold that catches `wanted` worth. Requires: there is one.
  std::int32_t ThresholdFor(double wanted) const;
  // The threshold that maximises price * caught - predicted.
  std::int32_t Best(double price) const;

 private:
  void MakeHull();

  std::vector<std::int32_t> scores_;  // all, falling
  std::vector<std::int32_t> active_;  // of active tokens, falling
  std::vector<double> caught_;        // worth of the first i + 1 of them
  std::vector<Point> hull_;           // from nothing predicted on; slopes fall
};

}  // namespace thermocline::offline
