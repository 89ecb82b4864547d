// The last norm and the head on a device: logits of a step's last tokens.
#pragma once

#include <span>

#include "engine/gpu/device_dense.h"

namespace thermocline::gpu {

// Decode thread only. Borrows the model; owns the host's logits, the device's memory is its
// arena's.
class DeviceHead {
 public:
  // `logits_max`: tokens of one step. Asks `arena` for the device's memory.
  DeviceHead(const DeviceModel& model, int logits_max, DeviceArena& arena);
  // The bytes of the host's memory that it takes.
  static std::size_t HostBytes(const model::ModelConfig& config, int logits_max) {
    return Area(logits_max, config.vocab_size) * sizeof(float);
  }
  DeviceHead(const DeviceHead&) = delete;
  DeviceHead& operator=(const DeviceHead&) = delete;
  // The host's memory: at load, and again after the device was reset. Errors as
  // device::MappedBuffer::Allocate.
  Status Allocate();

  // Has the logits of `count` tokens computed and copied to logits(); `residual` [count, D] is on
  // the device. Unavailable. Requires: count <= logits_max.
  Status Put(const float* residual, int count) const;
  // [count, V] of the last Put, once the stream has passed.
  std::span<const float> logits(int count) const;

 private:
  const DeviceModel& model_;
  const DeviceDense dense_;
  const int logits_max_;
  // Twice the tokens: DeviceDense::MultiplyPrecisely.
  kernels::DeviceActivations x_;  // [2 logits_max, D]
  float* logits_ = nullptr;       // [2 logits_max, V]
  device::MappedBuffer result_;   // [logits_max, V]
};

}  // namespace thermocline::gpu
