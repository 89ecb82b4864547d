// Keys and values of the tokens seen so far, as f16.
//
// Layout: for each layer and kv head, [capacity, stride] rows of keys, then the same for values;
// stride is Dh rounded up to 16, the padding stays zero, so that kernels need no tails.
#pragma once

#include <cstdint>

#include "engine/base/huge_buffer.h"
#include "engine/model/model_config.h"

namespace thermocline::exec {

// Decode thread only. All memory is taken at construction; rolling back is setting the length.
class KvCache {
 public:
  // ResourceExhausted if `capacity` tokens do not fit the memory.
  static Result<KvCache> Create(const model::ModelConfig& config, int capacity);

  int capacity() const { return capacity_; }  // tokens
  int length() const { return length_; }      // tokens cached
  void SetLength(int length) { length_ = length; }
  int stride() const { return stride_; }  // f16 values in a row
  std::size_t bytes() const { return memory_.size(); }

  std::uint16_t* keys(int layer, int head) { return Row(layer, head, 0); }
  std::uint16_t* values(int layer, int head) { return Row(layer, head, 1); }

 private:
  std::uint16_t* Row(int layer, int head, int kind) {
    const std::size_t index = (static_cast<std::size_t>(layer) * static_cast<std::size_t>(heads_) +
                               static_cast<std::size_t>(head)) *
                                  2 +
                              static_cast<std::size_t>(kind);
    return reinterpret_cast<std::uint16_t*>(memory_.data()) +
           index * static_cast<std::size_t>(capacity_) * static_cast<std::size_t>(stride_);
  }

  base::HugeBuffer memory_;
  int heads_ = 0;
  int capacity_ = 0;
  int stride_ = 0;
  int length_ = 0;
};

}  // namespace thermocline::exec
