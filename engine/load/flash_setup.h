// Loads a model's weights according to its memory plan, and opens the flash tier for the rest.
#pragma once

#include "engine/load/loaded_model.h"

namespace thermocline::load {

// Loads the weights that the plan keeps in memory; sets the layouts in `plan` that the flash tier
// needs. FailedPrecondition: a mode that the tier cannot run.
//
// `device`: the weights that a device has and that are not loaded; null: none.
Status LoadHeldWeights(const model::ModelFile& file, const LoadOptions& options,
                       const DeviceShare* device, FfnPlan& plan, LoadedModel& out);

// Opens the flash tier, fills its cache and points the weights to its memory. FailedPrecondition:
// the bundle file holds other matrices.
Status OpenFlash(const model::ModelFile& file, const LoadOptions& options,
                 store::BundleIndex bundle, LoadedModel& out);

}  // namespace thermocline::load
