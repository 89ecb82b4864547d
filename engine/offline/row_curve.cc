#include "engine/offline/row_curve.h"

#include <algorithm>
#include <functional>

namespace thermocline::offline {
namespace {

// Counts those of the falling `scores` that reach the threshold.
std::size_t CountReaching(const std::vector<std::int32_t>& scores, std::int64_t threshold) {
  return std::partition_point(scores.begin(), scores.end(),
                              [&](std::int32_t score) { return score >= threshold; }) -
         scores.begin();
}

// True if `b` lies on or below the line from `a` to `c`.
bool IsBelow(const RowCurve::Point& a, const RowCurve::Point& b, const RowCurve::Point& c) {
  return (b.caught - a.caught) * (c.predicted - a.predicted) <=
         (c.caught - a.caught) * (b.predicted - a.predicted);
}

}  // namespace

RowCurve::RowCurve(std::vector<std::int32_t> scores, std::vector<Active> active)
    : scores_(std::move(scores)) {
  std::sort(scores_.begin(), scores_.end(), std::greater<>());
  std::stable_sort(active.begin(), active.end(),
                   [](const Active& a, const Active& b) { return a.score > b.score; });
  double worth = 0;
  for (const Active& a : active) {
    active_.push_back(a.score);
    caught_.push_back(worth += a.worth);
  }
  MakeHull();
}

// Only scores of active tokens are useful thresholds: a threshold between two of them predicts more
// tokens without catching more.
void RowCurve::MakeHull() {
  hull_.push_back({.threshold = never(), .predicted = 0, .caught = 0});
  for (std::size_t i = 0; i < active_.size(); ++i) {
    if (i + 1 < active_.size() && active_[i + 1] == active_[i]) continue;
    const Point point{.threshold = active_[i],
                      .predicted = static_cast<double>(CountReaching(scores_, active_[i])),
                      .caught = caught_[i]};
    while (hull_.size() >= 2 && IsBelow(hull_[hull_.size() - 2], hull_.back(), point))
      hull_.pop_back();
    hull_.push_back(point);
  }
}

std::int32_t RowCurve::never() const {
  constexpr std::int32_t kMax = std::numeric_limits<std::int32_t>::max();
  if (scores_.empty()) return kMax;
  return scores_.front() == kMax ? kMax : scores_.front() + 1;
}

std::int64_t RowCurve::Predicted(std::int64_t threshold) const {
  return CountReaching(scores_, threshold);
}

std::int64_t RowCurve::CaughtTokens(std::int64_t threshold) const {
  return CountReaching(active_, threshold);
}

double RowCurve::Caught(std::int64_t threshold) const {
  const std::size_t count = CountReaching(active_, threshold);
  return count == 0 ? 0 : caught_[count - 1];
}

std::int32_t RowCurve::ThresholdFor(double wanted) const {
  const auto at = std::lower_bound(caught_.begin(), caught_.end(), wanted);
  return at == caught_.end() ? active_.back() : active_[at - caught_.begin()];
}

std::int32_t RowCurve::Best(double price) const {
  // Slopes decrease along the hull: advances while the next point gains.
  const auto gains = [&](const Point& next) {
    const Point& before = *(&next - 1);
    return price * (next.caught - before.caught) > next.predicted - before.predicted;
  };
  const auto end = std::partition_point(hull_.begin() + 1, hull_.end(), gains);
  return (end - 1)->threshold;
}

}  // namespace thermocline::offline
