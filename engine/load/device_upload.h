// Uploads weights to a device, a layer at a time, from the host's memory or, if they are not there,
// from the model's file; then frees the host memory that is not needed any more.
#pragma once

#include "engine/load/loaded_model.h"

namespace thermocline::load {

// Uploads everything that `on` holds, except rows of neurons that the host has or reads from flash:
// those follow by DeviceModel::UploadNeurons. Frees weights that the host does not need any more.
// Errors of the file and of the device.
Status UploadWeights(LoadedModel& model, gpu::DeviceModel& on,
                     const std::function<void(double)>& on_progress);

// True if the host has rows of the layer's neurons, in memory or on flash.
bool HasRows(const model::LayerWeights& layer);

// Uploads everything again from the file, after the device lost its memory.
Status UploadAgain(const LoadedModel& model);

}  // namespace thermocline::load
