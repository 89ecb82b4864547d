#include "loadtest/measure/samples.h"

#include <algorithm>
#include <cmath>

#include "engine/base/index.h"

namespace thermocline::loadtest {

double Percentile(std::span<const double> sorted, double q) {
  const double place = q / 100 * (base::IntSize(sorted) - 1);
  const auto below = static_cast<std::size_t>(place);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return std::lerp(sorted[below], sorted[above], place - static_cast<double>(below));
}

void Samples::Add(double value) {
  min_ = count_ == 0 ? value : std::min(min_, value);
  max_ = count_ == 0 ? value : std::max(max_, value);
  ++count_;
  const double off = value - mean_;
  mean_ += off / static_cast<double>(count_);
  squares_ += off * (value - mean_);
  if (kept_.size() < kept_max_) {
    in_order_ = false;
    kept_.push_back(value);
    // The choice of kept values does not depend on their order, so they may be sorted at any time.
  } else if (const std::uint64_t place = random_.Below(count_); place < kept_max_) {
    in_order_ = false;
    kept_[place] = value;
  }
}

double Samples::std_dev() const {
  return count_ == 0 ? 0 : std::sqrt(std::max(0.0, squares_ / static_cast<double>(count_)));
}

const std::vector<double>& Samples::sorted() const {
  if (!in_order_) std::sort(kept_.begin(), kept_.end());
  in_order_ = true;
  return kept_;
}

double Samples::Percentile(double q) const {
  return count_ == 0 ? 0 : loadtest::Percentile(sorted(), q);
}

Json Samples::ToJson() const {
  if (count_ == 0) return Json::Object{{"count", 0}};
  Json json = Json::Object{{"count", count_}, {"mean", mean()}, {"std", std_dev()}, {"min", min()}};
  for (const auto& [name, q] : kPercentiles) json.Set(name, Percentile(q));
  json.Set("max", max());
  if (sampled()) json.Set("sampled", kept_.size());
  return json;
}

}  // namespace thermocline::loadtest
