// Loads a model's weights as its memory plan says, and opens the flash tier for the rest.
#pragma once

#include "engine/load/loaded_model.h"

namespace thermocline::load {

// Loads what the plan holds in memory; gives the layouts of `plan` what the tier needs.
// FailedPrecondition: a mode that the tier cannot run.
//
// `device`: what it has of the weights is not loaded; null: it has none.
Status LoadHeldWeights(const model::ModelFile& file, const LoadOptions& options,
                       const DeviceShare* device, FfnPlan& plan, LoadedModel& out);

// Opens the flash tier, fills its cache and shows the weights where it keeps theirs.
// FailedPrecondition: the bundle file holds other matrices.
Status OpenFlash(const model::ModelFile& file, const LoadOptions& options,
                 store::BundleIndex bundle, LoadedModel& out);

}  // namespace thermocline::load
