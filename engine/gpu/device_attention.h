// Attention of the layers at home on a device, put on its stream: q, k and v of the normed tokens,
// rotation and the KV cache, attention to the cache, the output's product.
#pragma once

#include <vector>

#include "engine/gpu/device_dense.h"
#include "engine/gpu/device_kv_cache.h"

namespace thermocline::gpu {

// Decode thread only. Borrows model and cache; its memory is its arena's. All errors are
// Unavailable with the device's text.
class DeviceAttention {
 public:
  struct Params {
    const DeviceModel& model;
    const DeviceKvCache& kv;
    int tokens_max;             // T
    int context_length;         // tokens of a sequence
    std::size_t scratch_bytes;  // at most, or one token's: longer prompts go in pieces
  };
  DeviceAttention(const Params& params, DeviceArena& arena);
  DeviceAttention(const DeviceAttention&) = delete;
  DeviceAttention& operator=(const DeviceAttention&) = delete;

  struct Input {
    kernels::DeviceActivations hidden;   // [T, D] normed, with its Q8 form
    const std::int32_t* positions;       // [T]
    std::uint8_t* const* const* tables;  // [T] of the blocks of each token's sequence
    int tokens;                          // T
  };
  // out [T, D] = the layer's attention, or += that; k and v of the tokens are stored.
  Status Put(int layer, const Input& input, float* out, bool accumulate) const;

 private:
  Status RotateAndStore(int layer, const Input& input, const kernels::DeviceActivations& q) const;
  Status Attend(int layer, const Input& input, const kernels::DeviceActivations& q) const;

  const DeviceModel& model_;
  const DeviceDense dense_;
  const DeviceKvCache& kv_;
  const int context_length_;
  kernels::DeviceActivations q_, attended_;  // [T, H Dh]
  float *k_ = nullptr, *v_ = nullptr;        // [T, K Dh]
  float* scratch_ = nullptr;                 // of tokens_at_once_ tokens
  int tokens_at_once_ = 1;                   // of one call of the kernel
  float *cos_ = nullptr, *sin_ = nullptr;    // [S, rotated dims / 2]; null: no rotation
  std::vector<float> host_cos_, host_sin_;   // what those are uploaded from
};

}  // namespace thermocline::gpu
