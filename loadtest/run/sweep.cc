#include "loadtest/run/sweep.h"

#include <algorithm>

namespace thermocline::loadtest {

std::optional<double> SweepPlan::Next() const {
  if (!steps_.empty())
    return gains_.size() < steps_.size() ? std::optional(steps_[gains_.size()]) : std::nullopt;
  if (gains_.empty()) return first_;
  if (steps_without_gain_ >= 2 || last_ * 2 > kLoadMax) return std::nullopt;
  return last_ * 2;
}

void SweepPlan::Add(double load, double gain) {
  constexpr double kGain = 1.05;
  last_ = load;
  gains_.push_back(gain);
  steps_without_gain_ = gain > best_ * kGain ? 0 : steps_without_gain_ + 1;
  best_ = std::max(best_, gain);
}

std::optional<std::size_t> SweepPlan::knee() const {
  if (gains_.empty()) return std::nullopt;
  return std::max_element(gains_.begin(), gains_.end()) - gains_.begin();
}

}  // namespace thermocline::loadtest
