// The loads of a sweep, in ascending order, until the throughput stops growing.
#pragma once

#include <optional>
#include <vector>

namespace thermocline::loadtest {

// The knee is the load with the highest gain: good requests per second, or output tokens per second
// without limits for good ones. Without given steps the load doubles until two steps in a row gain
// less than 5% over the best so far.
class SweepPlan {
 public:
  SweepPlan(std::vector<double> steps, double first) : steps_(std::move(steps)), first_(first) {}

  std::optional<double> Next() const;
  void Add(double load, double gain);
  // Returns the index of the knee among the added loads; nullopt without any.
  std::optional<std::size_t> knee() const;

 private:
  static constexpr double kLoadMax = 20000;
  const std::vector<double> steps_;
  const double first_;
  std::vector<double> gains_;
  double last_ = 0, best_ = 0;
  int steps_without_gain_ = 0;
};

}  // namespace thermocline::loadtest
