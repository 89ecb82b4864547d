// Mode inputs at load: copies of the matrices, and whether "auto" takes the mode.
#pragma once

#include "engine/load/loaded_model.h"

namespace thermocline::load {

// FailedPrecondition for a model that has no mode inputs.
Status CanCutInputs(const model::ModelConfig& config);

// Checks the rules and makes the copies. FailedPrecondition for a layer that cannot be computed so,
// or where a part of the model comes from flash; InvalidArgument for rules of another size;
// ResourceExhausted.
Status SetUpInputs(const FfnOptions& options, bool on_flash, LoadedModel& model);

// Decodes by the rules if that is faster than the modes that are set, by measurement, and the
// layers can be computed so, and memory has room for the copies. Else it says why, and takes the
// rules away, unless requests may ask for the mode (`asked`). Errors of decoding.
Status TryInputs(bool asked, LoadedModel& model);

// Takes the rules away: no request can ask for the mode.
void DropInputs(LoadedModel& model);

}  // namespace thermocline::load
