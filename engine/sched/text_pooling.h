// Pools a text's hidden states, which arrive in parts, into one vector.
#pragma once

#include <span>
#include <vector>

#include "engine/api/request.h"

namespace thermocline::sched {

// Thread-compatible.
class TextPooling {
 public:
  // Begins a new text with hidden states of `size` values.
  void Begin(Pooling pooling, int size);
  // Adds the next tokens' hidden states [T, size].
  void Add(std::span<const float> states);
  // Returns the vector, normalized to length 1 (zeros if all sums are 0). Requires: Add was called.
  std::vector<float> Take();
  // Returns the mean of the states [size]. Requires: Pooling::kMean, and Add was called.
  std::vector<float> Mean() const;
  // Returns the state [size] of the text's first token. Requires: Pooling::kRank.
  std::vector<float> First() const { return {sum_.begin(), sum_.end()}; }

 private:
  Pooling pooling_ = Pooling::kMean;
  std::vector<double> sum_;
  std::size_t tokens_ = 0;
};

}  // namespace thermocline::sched
