// The inputs of the networks of layers at home on a device, for an audited token, on their way to
// the auditor: copied to the host while the step runs.
#pragma once

#include "engine/ffn/auditor.h"
#include "engine/ffn/sparse_ffn.h"
#include "engine/gpu/device_model.h"
#include "engine/gpu/sizes.h"

namespace thermocline::gpu {

// Decode thread only. Owns the host's memory; takes none of the device's.
class DeviceTaps {
 public:
  // `used`: steps may be audited; else nothing is allocated.
  DeviceTaps(const DeviceModel& model, bool used);
  // The bytes of the host's memory that it takes, at most.
  static std::size_t HostBytes(const model::ModelConfig& config) {
    return Area(2 * config.num_hidden_layers, config.hidden_size) * sizeof(float);
  }
  DeviceTaps(const DeviceTaps&) = delete;
  DeviceTaps& operator=(const DeviceTaps&) = delete;
  // At load, and again after the device was reset. Errors as device::MappedBuffer::Allocate.
  Status Allocate();

  // Before a step: opens the taps if `auditor` wants any layer of it; null: it does not. `cold`
  // says the modes.
  void Open(ffn::Auditor* auditor, const ffn::SparseFfn& cold);
  bool open() const { return open_; }
  // Has the first token's hidden and residual [D] copied, if the taps are open. Unavailable.
  Status Put(int layer, const float* hidden, const float* residual) const;
  // Hands them to the auditor. Requires: the stream has passed.
  void Keep(const ffn::SparseFfn& cold) const;

 private:
  // By which the layer is computed.
  ffn::FfnPolicy PolicyOf(int layer, const ffn::SparseFfn& cold) const;
  float* of(int layer) const;  // [2, D]

  const DeviceModel& model_;
  const bool used_;
  const int layers_;  // at home
  bool open_ = false;
  ffn::Auditor* auditor_ = nullptr;
  device::MappedBuffer memory_;  // [L, 2, D]
};

}  // namespace thermocline::gpu
