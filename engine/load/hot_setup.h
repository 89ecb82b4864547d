// Sets up the hot tier: neurons on two sides, as the user's options require.
#pragma once

#include "engine/load/loaded_model.h"

namespace thermocline::load {

// The GPU, or the reason why it cannot be used.
using Accelerator = Result<std::unique_ptr<device::Device>>;
// Opens the GPU that the options name. Requires: the options ask for a GPU.
Accelerator OpenAccelerator(const LoadOptions& options);

// Chooses the device, plans which neurons are hot or reads the plan, and moves them there.
// Unavailable, with the reason, if a required GPU is missing. FailedPrecondition: the model's
// neurons cannot be split; a placement of another model or machine. `gpu`: used if the options ask
// for one. `early`: the decisions made before loading; null: none. After an error, with or without
// `early`, the model cannot be used.
Status SetUpHotTier(const model::ModelFile& file, const LoadOptions& options, Accelerator gpu,
                    const DeviceShare* early, LoadedModel& out);

}  // namespace thermocline::load
