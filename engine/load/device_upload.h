// Weights on their way to a device: from the host's memory where it has them, else from the model's
// file, a layer at a time; and the host's memory of them given back.
#pragma once

#include "engine/load/loaded_model.h"

namespace thermocline::load {

// All that `on` holds but for rows of neurons that the host has, or reads from flash: those follow
// by DeviceModel::UploadNeurons. What the host has no more use for is given back. Errors of the
// file and of the device.
Status UploadWeights(LoadedModel& model, gpu::DeviceModel& on,
                     const std::function<void(double)>& on_progress);

// True if the host has rows of the layer's neurons, in memory or on flash.
bool HasRows(const model::LayerWeights& layer);

// All that the device holds, from the file, for a device that lost it.
Status UploadAgain(const LoadedModel& model);

}  // namespace thermocline::load
