// Repeated measurements of one quantity.
#pragma once

#include <algorithm>
#include <vector>

#include "engine/base/json.h"

namespace thermocline::tools {

struct Samples {
  std::vector<double> values = {};

  // Requires: at least one value. With an even number of values, median() is the upper middle one.
  double median() const {
    std::vector<double> sorted = values;
    std::sort(sorted.begin(), sorted.end());
    return sorted[sorted.size() / 2];
  }
  double min() const { return *std::min_element(values.begin(), values.end()); }
  double max() const { return *std::max_element(values.begin(), values.end()); }
  Json ToJson() const { return Json::Object{{"median", median()}, {"min", min()}, {"max", max()}}; }
};

}  // namespace thermocline::tools
