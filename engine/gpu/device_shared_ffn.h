// The device's end of layers at home there whose cold neurons the CPU computes: hands over the
// normed input, computes the hot neurons and shares the sum (kernels/shared_sum.h). The other end
// is host_shared_ffn.h.
#pragma once

#include <functional>

#include "engine/gpu/device_dense.h"
#include "engine/gpu/device_exchange.h"
#include "engine/gpu/device_ffn.h"

namespace thermocline::gpu {

// Decode thread only. Borrows all it is given; its memory is its arena's. All errors are
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

  // Before a step's layers are put on the stream or replayed.
  void BeginStep() { exchanges_ = 0; }
  // Called when an exchange, of the tokens from `first` on, is on the stream: the other end serves
  // it before more follows, because a stream holds a limited number of launches and the device
  // waits for the other end. Null while a graph is recorded: then it serves after the launch.
  using OnStream = std::function<Status(int first)>;
  // out = the layer's network of all neurons, or += that: an exchange for each kShareTokens
  // tokens; of float types one for all.
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
  // The numbers that the CPU sent.
  float *maxima_ = nullptr, *minimums_ = nullptr;  // [8, R, D / 32]
  std::int32_t *high_ = nullptr, *low_ = nullptr;  // [8, R, D]
  float* out_ = nullptr;                           // [T, D] of float types
  int exchanges_ = 0;                              // of this step
};

}  // namespace thermocline::gpu
