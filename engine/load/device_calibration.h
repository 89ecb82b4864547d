// Measures the speed of a device with a model's types and shapes, for placement: as
// load/calibration.h, in two seconds on arbitrary weights.
#pragma once

#include "engine/device/device.h"
#include "engine/load/calibration.h"

namespace thermocline::load {

struct DeviceCalibrationOptions {
  NetworkTypes types;
  std::size_t network_bytes = 0;  // of the model: smaller ones may fit into caches
  double seconds = 2;
};

// `machine` with the device as its hot side: the device's speeds, the cost of a wait for each
// other, the link's bandwidth, free memory, and if the CPU shares it. Errors as
// MakeSyntheticNetwork and DeviceModel::Create.
Result<placement::Machine> WithDevice(placement::Machine machine, device::Device& device,
                                      const model::ModelConfig& model,
                                      const DeviceCalibrationOptions& options);

}  // namespace thermocline::load
