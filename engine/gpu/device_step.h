// The data that a step exchanges with the device. To the device, in one small copy: positions,
// tables of KV blocks, the residual stream. Back to the host: the residual stream.
#pragma once

#include <span>

#include "engine/gpu/device_activations.h"
#include "engine/gpu/device_kv_cache.h"

namespace thermocline::gpu {

// One sequence's part of a step.
struct DevicePart {
  nn::KvCache* cache;  // reserved
  int tokens;
  int rows;  // logits of its last so many tokens are wanted
};

// Decode thread only. Owns the host's memory; the device's is its arena's.
class DeviceStep {
 public:
  struct Params {
    int hidden_size;        // D
    int tokens_max;         // T of one step
    int context_length;     // tokens of a sequence
    int parts_max;          // sequences of one step
    bool returns_residual;  // the head is not on the device
  };
  // Asks `arena` for the device's memory.
  DeviceStep(const Params& params, DeviceArena& arena);
  // The bytes of the host's memory that it takes, at most.
  static std::size_t HostBytes(const Params& params);
  DeviceStep(const DeviceStep&) = delete;
  DeviceStep& operator=(const DeviceStep&) = delete;
  // The host's memory: at load, and again after the device was reset. Errors as
  // device::MappedBuffer::Allocate.
  Status Allocate(device::Device& device);

  // Has the tokens of `parts` behind those in their caches copied to the device: `residual` [T, D]
  // are the embedded ones. Unavailable. Requires: T <= tokens_max, at most parts_max parts.
  Status Send(std::span<const DevicePart> parts, const DeviceKvCache& kv, const float* residual,
              device::DeviceStream& stream);
  // Has the residual stream of `tokens` tokens copied back, to result(). Unavailable.
  Status Return(int tokens, device::DeviceStream& stream);
  // [T, D] valid once the stream has passed.
  std::span<const float> result() const {
    return {result_.host<float>(), result_.bytes() / sizeof(float)};
  }

  // On the device.
  const std::int32_t* positions() const {  // [T]
    return reinterpret_cast<const std::int32_t*>(data_);
  }
  std::uint8_t* const* const* tables() const {  // [T] of the blocks of each token's sequence
    return reinterpret_cast<std::uint8_t* const* const*>(data_ + tables_at_);
  }
  float* residual() const { return reinterpret_cast<float*>(data_ + residual_at_); }  // [T, D]

 private:
  static std::size_t TablesAt(const Params& params);
  static std::size_t ResidualAt(const Params& params);
  static std::size_t BlocksBytes(const Params& params);
  std::size_t ResidualBytes(int tokens) const { return Area(tokens, hidden_size_) * sizeof(float); }

  const int hidden_size_, tokens_max_, parts_max_;
  const bool returns_residual_;
  // Bytes; positions are first. Behind the step's tokens lie the blocks of its sequences.
  const std::size_t tables_at_, residual_at_;
  const std::size_t blocks_bytes_;  // at most
  std::uint8_t* data_ = nullptr;    // on the device
  device::MappedBuffer sent_, result_;
};

}  // namespace thermocline::gpu
