// Mode "auto": chooses by measurement the fastest mode of each layer that keeps the quality.
//
// A short decode without loss measures each layer's share of live neurons. Then one layer in the
// middle is timed in every mode, in the layout it would get; the cost of the other layers is
// estimated from its cost per byte and their own shares. So loading takes some tens of tokens, not
// every layer in every mode.
#pragma once

#include "engine/load/loaded_model.h"

namespace thermocline::load {

// Gives one layer's matrices the layouts that `mode` reads fastest among those that allow it to run
// `also`. Other modes may then be slower, or impossible until this is called for them.
void UseLayoutsOf(FfnMode mode, std::size_t layer, LoadedModel& model,
                  const std::vector<FfnMode>& also = {});

struct ModeChoice {
  std::vector<FfnMode> candidates;  // beside dense and exact; the side-car states their shares
  std::vector<FfnMode> also;        // modes that every layer must be able to run
  // Hold the down projections neuron-major if they then take at most this share of the time:
  // prefill is slower with them, and noise should not make two runs differ. Projections smaller
  // than these bytes fit into caches, where there is little to gain.
  bool may_turn_down = false;
  double turned_share_max = 0.9;
  std::size_t turned_bytes_min = std::size_t{4} << 20;
};
// Sets model.ffn_modes and the layouts that go with them. Either all down projections are
// transposed or none: a model with mixed layouts would be hard to reason about.
Status ChooseModes(LoadedModel& model, const ModeChoice& choice);

}  // namespace thermocline::load
