// From what a user asks of the hot tier to neurons on two sides.
#pragma once

#include "engine/load/loaded_model.h"

namespace thermocline::load {

// Chooses what computes, plans which neurons are hot, or reads the plan, and moves them there.
// Without a GPU that is asked for: Unavailable with the reason. FailedPrecondition: the model's
// neurons cannot be shared out; a placement of another model or machine.
Status SetUpHotTier(const model::ModelFile& file, const LoadOptions& options, LoadedModel& out);

}  // namespace thermocline::load
