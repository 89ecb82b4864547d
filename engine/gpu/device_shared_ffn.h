// The device's end of its home layers whose cold neurons the CPU computes: hands over the normed
// input, computes the hot neurons and shares the sum (kernels/shared_sum.h). The other end is
// host_shared_ffn.h.
#pragma once

#include <functional>

#include "engine/gpu/device_dense.h"
#include "engine/gpu/device_exchange.h"
#include "engine/gpu/device_ffn.h"

namespace thermocline::gpu {

// Decode thread only. Borrows its parameters; its memory belongs to the arena. All errors are
// Unavailable with the device's text.
class DeviceSharedFfn {
 public:
  struct Params {
    const DeviceModel& model;
    DeviceFfn& ffn;
    DeviceExchange& exchange;
    int tokens_max;  // T
  };
  DeviceSharedFfn(const Params& params, DeviceArena& arena);
  DeviceSharedFfn(const DeviceSharedFfn&) = delete;
  DeviceSharedFfn& operator=(const DeviceSharedFfn&) = delete;

  // Called before a step's layers are enqueued or replayed.
  void BeginStep() { exchanges_ = 0; }
  // Called when an exchange, of the tokens from `first` on, has been enqueued: the other end must
  // serve it before more work follows, because a stream holds a limited number of launches and the
  // device waits for the other end. Null while a graph is recorded: the other end then serves after
  // the launch.
  using OnStream = std::function<Status(int first)>;
  // out = the layer's network with all neurons, or += if `accumulate`: one exchange per
  // kShareTokens tokens; for float types one for all tokens.
  Status Put(int layer, FfnMode mode, const DeviceFfn::Input& input, const DeviceFfn::Output& out,
             const OnStream& serve);

 private:
  Status PutFloats(int layer, FfnMode mode, const DeviceFfn::Input& input,
                   const DeviceFfn::Output& out);
  // Enqueues a batch of up to kShareTokens tokens.
  Status PutBatch(int layer, FfnMode mode, const DeviceFfn::Input& input,
                  const DeviceFfn::Output& out);
  // Waits for the CPU's sums, and copies them to the device.
  Status TakeSums(int layer, std::size_t cells);

  const DeviceModel& model_;
  const DeviceDense dense_;
  DeviceFfn& ffn_;
  DeviceExchange& exchange_;
  // The CPU's maxima, minimums and sums, copied to the device.
  float *maxima_ = nullptr, *minimums_ = nullptr;  // [8, R, D / 32]
  std::int32_t *high_ = nullptr, *low_ = nullptr;  // [8, R, D]
  float* out_ = nullptr;                           // [T, D] for float types
  int exchanges_ = 0;                              // of this step
};

}  // namespace thermocline::gpu
