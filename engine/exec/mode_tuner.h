// Mode "auto": which mode of a layer is the fastest that keeps the quality, by measurement.
//
// A short decode without loss tells each layer's share of live neurons. One layer in the middle is
// then timed in every mode, in the layout the mode likes best; the others have its cost per byte at
// their own shares. So loading waits for some tens of tokens, not for every layer in every mode.
#pragma once

#include "engine/exec/loaded_model.h"

namespace thermocline::exec {

// Gives one layer's matrices the layouts that `mode` reads fastest. Other modes may then be slower,
// or impossible until it is called for them.
void UseLayoutsOf(FfnMode mode, std::size_t layer, LoadedModel& model);

// Sets model.ffn_modes and the layouts that go with them and with the modes that requests may ask
// for.
Status ChooseModes(const FfnPlan& plan, LoadedModel& model);

}  // namespace thermocline::exec
