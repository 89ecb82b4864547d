// For a device that shares its memory with the CPU: decides which weights it gets before any are
// loaded. The host then reads the device's weights only to upload them, one layer (or the head) at
// a time, and loading uses no more memory than planned.
#pragma once

#include "engine/load/loaded_model.h"

namespace thermocline::load {

// True if the device's part can be decided before loading: its memory is the host's, no placement
// was given, and no projection is transposed while loading, which needs all of them on the host.
bool CanPlaceEarly(const model::ModelFile& file, const ModelOptions& options,
                   const device::Device& device);

// Gives the device as many layers as the memory it may use can hold, in a plan that fits into
// memory as a whole. If no plan fits and there is a bundle file of neurons, it gets attention and
// the most used neurons of as many layers as possible, while the cache for the other neurons holds
// at least as many neurons as the device. Sets shapes instead of weights in `out`, and drops from
// `plan` a shadow that was not requested by name if its audits would need the networks twice.
// ResourceExhausted with a table.
Result<DeviceShare> PlaceEarly(const model::ModelFile& file, const LoadOptions& options,
                               device::Device& device, FfnPlan& plan, LoadedModel& out);

// The placement for a device's share.
gpu::DevicePlacement PlacementOf(const DeviceShare& share, const LoadedModel& model);

}  // namespace thermocline::load
