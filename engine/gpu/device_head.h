// The last norm and the head on a device: logits of a step's last tokens.
#pragma once

#include <span>

#include "engine/gpu/device_dense.h"

namespace thermocline::gpu {

// Decode thread only. Borrows the model; owns the host's logits; the device memory belongs to the
// arena.
class DeviceHead {
 public:
  // `logits_max`: maximum tokens of one step. Registers device memory in `arena`.
  DeviceHead(const DeviceModel& model, int logits_max, DeviceArena& arena);
  // The bytes of host memory that it uses.
  static std::size_t HostBytes(const model::ModelConfig& config, int logits_max) {
    return Area(logits_max, config.vocab_size) * sizeof(float);
  }
  DeviceHead(const DeviceHead&) = delete;
  DeviceHead& operator=(const DeviceHead&) = delete;
  // Allocates host memory: at load, and again after the device was reset. Errors as
  // device::MappedBuffer::Allocate.
  Status Allocate();

  // Enqueues the computation of the logits of `count` tokens and their copy to logits(); `residual`
  // [count, D] is on the device. Unavailable. Requires: count <= logits_max.
  Status Put(const float* residual, int count) const;
  // [count, V] of the last Put, valid once the stream has passed it.
  std::span<const float> logits(int count) const;

 private:
  const DeviceModel& model_;
  const DeviceDense dense_;
  const int logits_max_;
  // Twice the tokens, for DeviceDense::MultiplyPrecisely.
  kernels::DeviceActivations x_;  // [2 logits_max, D]
  float* logits_ = nullptr;       // [2 logits_max, V]
  device::MappedBuffer result_;   // [logits_max, V]
};

}  // namespace thermocline::gpu
