// The state of a sequence's recurrent layers: for each layer the last columns of its convolution,
// and a matrix per head. Unlike the KV cache it has a fixed size whatever the sequence's length,
// and cannot be truncated: it is the state after one particular token.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "engine/base/huge_buffer.h"
#include "engine/base/index.h"
#include "engine/base/status.h"
#include "engine/model/model_config.h"

namespace thermocline::nn {

// The offsets of a layer's parts in a state. Const.
class StateLayout {
 public:
  // The layout is empty for a model without recurrent layers.
  explicit StateLayout(const model::ModelConfig& config);

  bool any() const { return layers_ > 0; }
  int layers() const { return layers_; }
  // Floats of a state, and of a token's inputs of the recurrence, of all layers.
  std::size_t state_floats() const { return layers_ * (columns_ + matrices_); }
  std::size_t input_floats() const { return layers_ * (channels_ + gates_); }
  // [taps - 1, C], the oldest first. Requires: the layer is recurrent.
  std::size_t columns_at(int layer) const { return index_[layer] * (columns_ + matrices_); }
  // [H, key_dim, value_dim].
  std::size_t matrices_at(int layer) const { return columns_at(layer) + columns_; }
  // [C] of the convolution's input, then [2, H] of decays and of the delta rule's beta or Mamba's
  // steps.
  std::size_t inputs_at(int layer) const { return index_[layer] * (channels_ + gates_); }
  std::size_t channels() const { return channels_; }

 private:
  std::vector<int> index_;  // [L] index among the recurrent layers
  int layers_ = 0;
  std::size_t columns_ = 0, matrices_ = 0, channels_ = 0, gates_ = 0;  // floats
};

// The memory of states. Decode thread only, except the constants. Reserved at once, resident when
// first written.
class StatePool {
 public:
  // `pending`: maximum tokens whose inputs are kept beside a state.
  // ResourceExhausted: the states do not fit the address space.
  static Result<StatePool> Create(const model::ModelConfig& config, int states, int pending);

  const StateLayout& layout() const { return layout_; }
  int states() const { return states_; }
  int free_states() const { return base::IntSize(free_); }
  int pending_max() const { return pending_; }
  std::size_t state_bytes() const { return state_bytes_; }  // with its pending inputs
  // Returns a state with unspecified contents; -1 if all are taken.
  int Take();
  void Release(int state) { free_.push_back(state); }
  std::span<float> data(int state) const { return {Begin(state), layout_.state_floats()}; }
  // The inputs of a token that is not yet part of the state [input_floats]. Requires: token <
  // pending_max().
  float* pending(int state, int token) const {
    return Begin(state) + layout_.state_floats() + token * layout_.input_floats();
  }
  // Bytes of one state and its inputs of `pending` tokens.
  static std::size_t Bytes(const model::ModelConfig& config, int pending);

 private:
  explicit StatePool(const model::ModelConfig& config) : layout_(config) {}
  float* Begin(int state) const {
    return reinterpret_cast<float*>(const_cast<std::byte*>(memory_.data()) + state * state_bytes_);
  }

  StateLayout layout_;
  base::HugeBuffer memory_;
  std::size_t state_bytes_ = 0;
  int states_ = 0, pending_ = 0;
  std::vector<int> free_;  // capacity for all: never allocates
};

}  // namespace thermocline::nn
