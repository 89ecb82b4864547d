// Baselines of --placement: as many neurons as the plan has, chosen without regard to use.
//
// Source: PowerInfer's comparisons (Song et al. 2024).
#pragma once

#include <string_view>

#include "engine/ffn/neuron_split.h"

namespace thermocline::load {

// True if `placement` names a baseline instead of a file: "random", randomly chosen neurons, or
// "naive", whole layers from the first on, as in layer offloading.
bool IsBaseline(std::string_view placement);

// Replaces the ids of `hot` [L] by as many ids of the baseline; with any other name they stay.
// `neurons`: F.
void PlaceAsBaseline(std::string_view placement, int neurons, ffn::NeuronIds& hot);

}  // namespace thermocline::load
