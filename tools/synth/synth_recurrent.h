// The parts of synthetic models with recurrent layers.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "engine/model/model_file.h"
#include "tools/synth/synth_model.h"

namespace thermocline::tools {

inline constexpr float kQuiet = 0.02F;  // what a block adds to the residual, relative to it

// Adds a layer's matrix of random numbers that depend on `kind`, layer and row, scaled by `gain`.
using AddPlain =
    std::function<void(const char* name, std::uint64_t kind, int rows, int cols, float gain)>;

// The family that has such a mixer (GGUF's general.architecture).
const char* FamilyOf(const SynthParams& params);
// Sets the kinds of layers and the sizes of their states. Requires: shapes and experts are set.
void SetMixers(const SynthParams& params, model::ModelConfig& config);
// Adds a recurrent layer's tensors; decays lie near 1, so that states remember.
void AddRecurrent(const AddPlain& plain, const std::string& prefix, model::ModelFile& file);
// Adds the expert that every token goes through, behind a switch; nothing if there is none.
void AddSharedExpert(const AddPlain& plain, const std::string& prefix, model::ModelFile& file);

}  // namespace thermocline::tools
