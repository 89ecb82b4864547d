// One vector from a text's hidden states, which come in parts.
#pragma once

#include <span>
#include <vector>

#include "engine/api/request.h"

namespace thermocline::sched {

// Thread-compatible.
class TextPooling {
 public:
  // A new text of vectors of `size`.
  void Begin(Pooling pooling, int size);
  // The next tokens' hidden states [T, size].
  void Add(std::span<const float> states);
  // The vector, of length 1 (of zeros, if all are). Requires: something was added.
  std::vector<float> Take();

 private:
  Pooling pooling_ = Pooling::kMean;
  std::vector<double> sum_;
  std::size_t tokens_ = 0;
};

}  // namespace thermocline::sched
