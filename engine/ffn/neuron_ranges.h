// A layer's neurons divided into ranges, the work items of the loops over neurons.
#pragma once

#include <algorithm>
#include <vector>

#include "engine/base/index.h"

namespace thermocline::ffn {

inline constexpr int kRange = 512;  // maximum neurons of a range

// Neurons [begin, begin + count) of a layer, counted among its members: their *places*. Results of
// the ranges are stored by place, so that threads write without synchronisation.
struct NeuronRange {
  int index = 0;                 // of the layer's ranges
  int begin = 0;                 // index * the ranges' size
  int count = 0;                 // the ranges' size, or less in the last
  const int* members = nullptr;  // ids of the layer's members, ascending; null: place = id

  int id(int i) const { return members != nullptr ? members[begin + i] : begin + i; }
  // [count] ids; null: they are begin, begin + 1, ...
  const int* ids() const { return members != nullptr ? members + begin : nullptr; }
};

// Const. Borrows `members`.
class NeuronRanges {
 public:
  // members: [L] ascending ids; null: all of `neurons`. size: of a range, kRange or fewer, a
  // multiple of a panel's rows.
  NeuronRanges(int neurons, const std::vector<std::vector<int>>* members, int size = kRange)
      : neurons_(neurons), members_(members), size_(size) {}

  int NumMembers(int layer) const {
    return members_ != nullptr ? base::IntSize(Members(layer)) : neurons_;
  }
  int NumRanges(int layer) const { return (NumMembers(layer) + size_ - 1) / size_; }
  NeuronRange Of(int layer, int index) const {
    const int begin = index * size_;
    return {index, begin, std::min(size_, NumMembers(layer) - begin),
            members_ != nullptr ? Members(layer).data() : nullptr};
  }
  bool all() const { return members_ == nullptr; }
  const std::vector<int>& Members(int layer) const {  // requires: not all()
    return (*members_)[layer];
  }

 private:
  int neurons_;
  const std::vector<std::vector<int>>* members_;
  int size_;
};

}  // namespace thermocline::ffn
