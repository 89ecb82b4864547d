// The data that both sides of a layer exchange: arrays in mapped memory, and flags that announce
// them. The layer's home side provides the input; the other side computes its neurons.
#pragma once

#include "engine/gpu/device_hand_off.h"
#include "engine/model/model_config.h"

namespace thermocline::gpu {

// Decode thread only. Owns its mapped memory.
class DeviceExchange {
 public:
  struct Params {
    device::Device& device;
    int tokens_max;   // T
    int hidden_size;  // D
    int runs;         // R of the sums
  };
  explicit DeviceExchange(const Params& params);
  // The bytes of host memory for `tokens_max` tokens of that model.
  static std::size_t Bytes(const model::ModelConfig& config, int tokens_max);
  // Called at load, and again after the device was reset. Errors as device::MappedBuffer::Allocate.
  Status Allocate();

  struct Arrays {
    // Written by the side where the layer is at home.
    float *x, *residual;  // [T, D]
    float* home_maxima;   // [8, R, D / 32] its own, or the maximum of both: the limits
    // Written by the other side.
    float* maxima[2];          // [8, R, D / 32] alternating: the reader may be one behind
    std::int32_t *high, *low;  // [8, R, D]
    float* minimums;           // [8, R, D / 32]
    float* out;                // [T, D] for float types, instead of maxima and sums
  };
  // The same arrays at host addresses and at device addresses. Requires: Allocate.
  const Arrays& host() const { return host_; }
  const Arrays& on_device() const { return on_device_; }
  DeviceHandOff& flags() { return flags_; }
  // Releases every wait of the device after an error. Does nothing before Allocate.
  void Release();

 private:
  Arrays Layout(std::byte* at) const;

  device::Device& device_;
  const std::size_t tokens_;  // T D
  const std::size_t cells_;   // 8 R D
  DeviceHandOff flags_;
  device::MappedBuffer memory_;
  Arrays host_ = {}, on_device_ = {};
};

}  // namespace thermocline::gpu
