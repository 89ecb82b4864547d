// Mode "auto": which mode of a layer is the fastest that keeps the quality, by measurement.
//
// A short decode without loss tells each layer's share of live neurons. One layer in the middle is
// then timed in every mode, in the layout it would be given; the others have its cost per byte at
// their own shares. So loading waits for some tens of tokens, not for every layer in every mode.
#pragma once

#include "engine/load/loaded_model.h"

namespace thermocline::load {

// Gives one layer's matrices the layouts that `mode` reads fastest of those that let it run `also`.
// Other modes may then be slower, or impossible until it is called for them.
void UseLayoutsOf(FfnMode mode, std::size_t layer, LoadedModel& model,
                  const std::vector<FfnMode>& also = {});

struct ModeChoice {
  std::vector<FfnMode> candidates;  // beside dense and exact; the side-car tells their shares
  std::vector<FfnMode> also;        // that every layer must be able to run
  // Hold the down projections neuron-major, if they then take at most this share of the time:
  // prompts are slower with them, and two runs should not differ by noise. Smaller ones than these
  // bytes lie in cache, where there is little to gain.
  bool may_turn_down = false;
  double turned_share_max = 0.9;
  std::size_t turned_bytes_min = std::size_t{4} << 20;
};
// Sets model.ffn_modes and the layouts that go with them. Down projections are turned all or none:
// a model whose layers differ would be hard to reason about.
Status ChooseModes(LoadedModel& model, const ModeChoice& choice);

}  // namespace thermocline::load
