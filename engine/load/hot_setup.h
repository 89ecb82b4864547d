// From what a user asks of the hot tier to neurons on two sides.
#pragma once

#include "engine/load/loaded_model.h"

namespace thermocline::load {

// The GPU, or why it cannot be used.
using Accelerator = Result<std::unique_ptr<device::Device>>;
// Opens the GPU that the options ask for. Requires: they ask for one.
Accelerator OpenAccelerator(const LoadOptions& options);

// Chooses what computes, plans which neurons are hot, or reads the plan, and moves them there.
// Without a GPU that is asked for: Unavailable with the reason. FailedPrecondition: the model's
// neurons cannot be shared out; a placement of another model or machine. `gpu`: used if the options
// ask for one. `early`: what was decided before loading; null: nothing. After an error, `early` or
// not, the model cannot be used.
Status SetUpHotTier(const model::ModelFile& file, const LoadOptions& options, Accelerator gpu,
                    const DeviceShare* early, LoadedModel& out);

}  // namespace thermocline::load
