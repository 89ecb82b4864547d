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
  int rows;  // number of its last tokens whose logits are needed
};

// Decode thread only. Owns the host memory; the device memory belongs to the arena.
class DeviceStep {
 public:
  struct Params {
    int hidden_size;        // D
    int tokens_max;         // T of one step
    int context_length;     // tokens of a sequence
    int parts_max;          // sequences of one step
    bool returns_residual;  // the head is not on the device
  };
  // Registers device memory in `arena`.
  DeviceStep(const Params& params, DeviceArena& arena);
  // Upper bound of the bytes of host memory.
  static std::size_t HostBytes(const Params& params);
  DeviceStep(const DeviceStep&) = delete;
  DeviceStep& operator=(const DeviceStep&) = delete;
  // Allocates host memory: at load, and again after the device was reset. Errors as
  // device::MappedBuffer::Allocate.
  Status Allocate(device::Device& device);

  // Enqueues the copy of the tokens of `parts`, which follow those in their caches, to the device:
  // `residual` [T, D] are their embeddings. Unavailable. Requires: T <= tokens_max, at most
  // parts_max parts.
  Status Send(std::span<const DevicePart> parts, const DeviceKvCache& kv, const float* residual,
              device::DeviceStream& stream);
  // Enqueues the copy of the residual stream of `tokens` tokens back to result(). Unavailable.
  Status Return(int tokens, device::DeviceStream& stream);
  // [T, D] valid once the stream has passed it.
  std::span<const float> result() const {
    return {result_.host<float>(), result_.bytes() / sizeof(float)};
  }

  // On the device:
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
  // Offsets in bytes; positions come first. The blocks of the step's sequences follow its tokens.
  const std::size_t tables_at_, residual_at_;
  const std::size_t blocks_bytes_;  // maximum
  std::uint8_t* data_ = nullptr;    // on the device
  device::MappedBuffer sent_, result_;
};

}  // namespace thermocline::gpu
