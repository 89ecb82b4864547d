// Copies the inputs of the networks of a device's home layers to the host during the step, for the
// auditor, if the token is audited.
#pragma once

#include "engine/ffn/auditor.h"
#include "engine/ffn/sparse_ffn.h"
#include "engine/gpu/device_model.h"
#include "engine/gpu/sizes.h"

namespace thermocline::gpu {

// Decode thread only. Owns host memory; uses no device memory.
class DeviceTaps {
 public:
  // `used`: steps may be audited; otherwise nothing is allocated.
  DeviceTaps(const DeviceModel& model, bool used);
  // Upper bound of the bytes of host memory.
  static std::size_t HostBytes(const model::ModelConfig& config) {
    return Area(2 * config.num_hidden_layers, config.hidden_size) * sizeof(float);
  }
  DeviceTaps(const DeviceTaps&) = delete;
  DeviceTaps& operator=(const DeviceTaps&) = delete;
  // Called at load, and again after the device was reset. Errors as device::MappedBuffer::Allocate.
  Status Allocate();

  // Called before a step: opens the taps if `auditor`, which may be null, wants any layer of it.
  // `cold` determines the modes.
  void Open(ffn::Auditor* auditor, const ffn::SparseFfn& cold);
  bool open() const { return open_; }
  // Enqueues the copy of the first token's hidden and residual [D], if the taps are open.
  // Unavailable.
  Status Put(int layer, const float* hidden, const float* residual) const;
  // Hands the copies to the auditor. Requires: the stream has passed them.
  void Keep(const ffn::SparseFfn& cold) const;

 private:
  // The policy that the layer is computed with.
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
