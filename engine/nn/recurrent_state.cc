#include "engine/nn/recurrent_state.h"

#include "engine/base/index.h"

namespace thermocline::nn {

StateLayout::StateLayout(const model::ModelConfig& c) : index_(c.num_hidden_layers, -1) {
  const model::RecurrentConfig& r = c.recurrent;
  if (!r.any()) return;
  for (int layer = 0; layer < c.num_hidden_layers; ++layer)
    if (r.has_state(layer)) index_[layer] = layers_++;
  channels_ = r.channels(c.hidden_size);
  columns_ = (r.taps - 1) * channels_;
  matrices_ = base::Area(r.heads, r.key_dim) * r.value_dim;
  gates_ = 2 * static_cast<std::size_t>(r.heads);
}

std::size_t StatePool::Bytes(const model::ModelConfig& config, int pending) {
  constexpr std::size_t kCacheLine = 64;
  const StateLayout layout(config);
  const std::size_t floats = layout.state_floats() + pending * layout.input_floats();
  return base::RoundUp(floats * sizeof(float), kCacheLine);
}

Result<StatePool> StatePool::Create(const model::ModelConfig& config, int states, int pending) {
  StatePool pool(config);
  if (!pool.layout_.any()) return pool;
  pool.state_bytes_ = Bytes(config, pending);
  pool.states_ = states;
  pool.pending_ = pending;
  auto memory = base::HugeBuffer::Allocate(pool.state_bytes_ * states);
  if (!memory.ok())
    return memory.status().Annotate(
        StrCat(states, " states of recurrent layers (lower engine.sequences_max)"));
  pool.memory_ = *std::move(memory);
  for (int state = states - 1; state >= 0; --state) pool.free_.push_back(state);
  return pool;
}

int StatePool::Take() {
  if (free_.empty()) return -1;
  const int state = free_.back();
  free_.pop_back();
  return state;
}

}  // namespace thermocline::nn
