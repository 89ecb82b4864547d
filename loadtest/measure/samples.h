// Many measurements of one quantity, in bounded memory: count, mean, standard deviation, minimum
// and maximum are exact; percentiles are exact up to a number of values, then those of a uniform
// sample.
//
// Source: reservoir sampling, algorithm R (Vitter, 1985); the running variance of Welford (1962).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/base/json.h"
#include "loadtest/workload/random.h"

namespace thermocline::loadtest {

// The percentile `q`, from 0 to 100, interpolated linearly between the two nearest ranks, as in
// NumPy. Requires: sorted, not empty.
double Percentile(std::span<const double> sorted, double q);

class Samples {
 public:
  static constexpr std::size_t kKeptDefault = 200000;
  explicit Samples(std::size_t kept_max = kKeptDefault) : kept_max_(kept_max) {}

  void Add(double value);

  std::uint64_t count() const { return count_; }
  bool sampled() const { return count_ > kept_.size(); }
  // 0 without values.
  double mean() const { return mean_; }
  double std_dev() const;  // of the population
  double min() const { return min_; }
  double max() const { return max_; }
  double Percentile(double q) const;
  // The kept samples in ascending order.
  const std::vector<double>& sorted() const;

  // {"count", "mean", "std", "min", "p50", "p90", "p95", "p99", "p99.9", "max"}; null without
  // values.
  Json ToJson() const;

 private:
  std::size_t kept_max_;
  std::uint64_t count_ = 0;
  double mean_ = 0, squares_ = 0, min_ = 0, max_ = 0;
  mutable std::vector<double> kept_;
  mutable bool in_order_ = true;
  Random random_{0x5EED};
};

// The percentiles of every table.
struct NamedPercentile {
  const char* name;
  double q;
};
inline constexpr NamedPercentile kPercentiles[] = {
    {"p50", 50}, {"p90", 90}, {"p95", 95}, {"p99", 99}, {"p99.9", 99.9}};

}  // namespace thermocline::loadtest
