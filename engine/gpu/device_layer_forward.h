// One layer of the forward pass on a device, enqueued on its stream: the same operations as
// Transformer's block.
//
//   r += Wo attention(norm(r));  r += ffn(norm(r)), or both from one norm(r) in parallel blocks
#pragma once

#include "engine/gpu/device_attention.h"
#include "engine/gpu/device_dense.h"
#include "engine/gpu/device_ffn.h"
#include "engine/gpu/device_shared_ffn.h"
#include "engine/gpu/device_step.h"
#include "engine/gpu/device_taps.h"

namespace thermocline::gpu {

// Decode thread only. Borrows its parameters; its memory belongs to the arena. All errors are
// Unavailable with the device's text.
class DeviceLayerForward {
 public:
  struct Params {
    DeviceAttention::Params attention;
    const DeviceStep& step;   // has the residual stream, r
    const DeviceTaps& taps;   // for the inputs of networks
    DeviceFfn& ffn;           // for layers that are whole on the device
    DeviceSharedFfn* shared;  // for the other layers; null: there are none
  };
  DeviceLayerForward(const Params& params, DeviceArena& arena);
  DeviceLayerForward(const DeviceLayerForward&) = delete;
  DeviceLayerForward& operator=(const DeviceLayerForward&) = delete;

  // Enqueues the layer for the `tokens` tokens that the step has sent. `serve`: for the exchanges
  // of a shared layer (device_shared_ffn.h).
  Status Put(int layer, int tokens, FfnMode mode, const DeviceSharedFfn::OnStream& serve);

 private:
  Status Attention(int layer, int tokens, float* out, bool accumulate);
  Status FeedForward(int layer, int tokens, FfnMode mode, const DeviceFfn::Output& out,
                     const DeviceSharedFfn::OnStream& serve);

  const DeviceModel& model_;
  const DeviceDense dense_;
  const DeviceStep& step_;
  const DeviceTaps& taps_;
  DeviceFfn& ffn_;
  DeviceSharedFfn* const shared_;
  DeviceAttention attention_;
  kernels::DeviceActivations hidden_;                    // [T, D] normed
  float *attention_out_ = nullptr, *ffn_out_ = nullptr;  // [T, D] for parallel blocks
};

}  // namespace thermocline::gpu
