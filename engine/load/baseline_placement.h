// Baselines of --placement: as many neurons as the plan has, but not the hottest.
//
// Source: PowerInfer's comparisons (Song et al. 2024).
#pragma once

#include <string_view>

#include "engine/ffn/neuron_split.h"

namespace thermocline::load {

// True if `placement` names a baseline instead of a file: "random", neurons that are drawn, or
// "naive", all of the first layers, as layers are offloaded.
bool IsBaseline(std::string_view placement);

// Replaces the ids of `hot` [L] by as many of the baseline; any other name leaves them. `neurons`:
// F.
void PlaceAsBaseline(std::string_view placement, int neurons, ffn::NeuronIds& hot);

}  // namespace thermocline::load
