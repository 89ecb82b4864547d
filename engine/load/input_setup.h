// Sets up mode inputs at load: copies of the matrices, and the decision if "auto" uses the mode.
#pragma once

#include "engine/load/loaded_model.h"

namespace thermocline::load {

// FailedPrecondition for a model that does not support mode inputs.
Status CanCutInputs(const model::ModelConfig& config);

// Checks the rules and makes the copies. FailedPrecondition for a layer that the mode cannot
// compute, or if a part of the model comes from flash; InvalidArgument for rules of another size;
// ResourceExhausted.
Status SetUpInputs(const FfnOptions& options, bool on_flash, LoadedModel& model);

// Decodes by the rules if that is measured to be faster than the current modes, the layers support
// it, and the copies fit into memory. Otherwise logs the reason and removes the rules, unless
// requests may choose the mode (`asked`). Errors of decoding.
Status TryInputs(bool asked, LoadedModel& model);

// Removes the rules: no request can choose the mode.
void DropInputs(LoadedModel& model);

}  // namespace thermocline::load
