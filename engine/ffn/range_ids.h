// Ids found by the ranges of a layer, each range on its own thread, then joined into one list.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "engine/base/index.h"
#include "engine/ffn/neuron_ranges.h"

namespace thermocline::ffn {

class RangeIds {
 public:
  explicit RangeIds(int neurons)
      : by_place_(neurons),
        counts_((by_place_.size() + kRange - 1) / kRange),
        joined_(by_place_.size()) {}
  static std::size_t Bytes(int neurons) {
    return base::Area(2, neurons) * sizeof(int) + base::Area(neurons / kRange + 1, 1) * sizeof(int);
  }

  void Put(const NeuronRange& range, std::span<const int> ids) {
    std::copy(ids.begin(), ids.end(), by_place_.begin() + range.begin);
    counts_[range.index] = base::IntSize(ids);
  }
  // Requires: the first `ranges` were put.
  std::span<const int> Join(int ranges) {
    count_ = 0;
    for (int range = 0; range < ranges; ++range) {
      const int more = counts_[range];
      std::copy_n(by_place_.data() + range * kRange, more, joined_.data() + count_);
      count_ += more;
    }
    return all();
  }
  void Clear() { count_ = 0; }
  // The ids that Join returned; empty after Clear.
  std::span<const int> all() const { return std::span(joined_).first(count_); }

 private:
  std::vector<int> by_place_;  // [F]
  std::vector<int> counts_;    // [ranges]
  std::vector<int> joined_;    // [F]
  int count_ = 0;              // of joined_
};

}  // namespace thermocline::ffn
