// Attention of the device's home layers, enqueued on its stream: q, k and v of the normed tokens,
// rotation and the KV cache, attention over the cache, the output's product.
#pragma once

#include <vector>

#include "engine/gpu/device_dense.h"
#include "engine/gpu/device_kv_cache.h"

namespace thermocline::gpu {

// Decode thread only. Borrows model and cache; its memory belongs to the arena. All errors are
// Unavailable with the device's text.
class DeviceAttention {
 public:
  struct Params {
    const DeviceModel& model;
    const DeviceKvCache& kv;
    int tokens_max;      // T
    int context_length;  // tokens of a sequence
    // Limit of the scratch memory, which has room for one token even if that is more. Long prompts
    // are computed in pieces.
    std::size_t scratch_bytes;
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
  // out [T, D] = the layer's attention, or += if `accumulate`; stores k and v of the tokens.
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
  float* scratch_ = nullptr;                 // for tokens_at_once_ tokens
  int tokens_at_once_ = 1;                   // in one call of the kernel
  float *cos_ = nullptr, *sin_ = nullptr;    // [S, rotated dims / 2]; null: no rotation
  std::vector<float> host_cos_, host_sin_;   // the source of the two for uploads
};

}  // namespace thermocline::gpu
