// Plans the part of a device that shares its memory with the CPU, before any weight is loaded: so
// the host never loads what the device computes, and the memory that loading takes is the plan's.
#pragma once

#include "engine/load/loaded_model.h"

namespace thermocline::load {

// True if the device's part can be decided before loading: its memory is the host's, nobody gave a
// placement, and no projection is turned while loading, which needs all of them on the host.
bool CanPlaceEarly(const model::ModelFile& file, const ModelOptions& options,
                   const device::Device& device);

// As many layers as the memory that the device may use can hold, in a plan that fits into memory as
// a whole. Where no plan does and there is a bundle file of neurons: attention, and the most used
// neurons, of as many layers; the others' cache holds as many neurons as the device. Gives `out`
// shapes instead of weights, and `plan` up a shadow that nobody asked for where its audits would
// need the networks twice. ResourceExhausted with a table.
Result<DeviceShare> PlaceEarly(const model::ModelFile& file, const LoadOptions& options,
                               device::Device& device, FfnPlan& plan, LoadedModel& out);

// The placement that gives the device its share.
gpu::DevicePlacement PlacementOf(const DeviceShare& share, const LoadedModel& model);

}  // namespace thermocline::load
