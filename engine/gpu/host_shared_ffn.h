// The CPU's end of a device's home layers: computes the cold neurons for the input that the device
// hands over, while the device computes the hot ones (device_shared_ffn.h).
#pragma once

#include <utility>
#include <vector>

#include "engine/ffn/hybrid_ffn.h"
#include "engine/gpu/device_exchange.h"
#include "engine/gpu/device_model.h"
#include "engine/nn/workspace.h"

namespace thermocline::gpu {

// Decode thread only. Borrows its parameters. Allocates nothing after construction.
class HostSharedFfn {
 public:
  struct Params {
    const DeviceModel& model;
    const kernels::OpTable& ops;  // the CPU's
    DeviceExchange& exchange;
    int tokens_max;  // T
  };
  explicit HostSharedFfn(const Params& params);
  // The bytes that it allocates.
  static std::size_t Bytes(const model::ModelConfig& config, int tokens_max);

  // Called before a step's layers are served.
  void BeginStep();
  struct Job {
    int layer, tokens;
    bool lossless, decoded;
    ffn::SparseFfn& cold;
  };
  // Serves one exchange of a layer, that of the tokens from `first` on, once the device's end of it
  // is enqueued; a layer's exchanges must be served in order. An error of the CPU's part, as
  // SparseFfn::Find, is kept for EndStep, and from then on the device receives zeros, because it
  // waits for a result anyway. Unavailable: the device failed or does not respond.
  Status ServeFrom(const Job& job, int first);
  // Serves all exchanges of a layer.
  Status Serve(const Job& job);
  // Called after the last layer: returns the CPU's first error in this step.
  Status EndStep() { return std::exchange(error_, OkStatus()); }

  // The counters of the cold side.
  const ffn::HybridCounters& counters() const { return counters_; }

 private:
  // Finds the live neurons for the input that the device handed over.
  Status Find(const Job& job);
  void Count(const Job& job, double seconds, bool last);
  // Null `cold`: sends zeros.
  void ServeFloats(int layer, int tokens, ffn::SparseFfn* cold);
  Status ServeBatch(int layer, int first, int tokens, ffn::SparseFfn* cold);
  void FillMaxima(int layer, int first, int tokens, ffn::SparseFfn* cold, float* maxima);
  void FillSums(int layer, int first, int tokens, ffn::SparseFfn* cold, const float* maxima);
  // The number of cells of `tokens` tokens' sums.
  std::size_t Cells(int tokens) const;

  const DeviceModel& model_;
  const kernels::OpTable& ops_;
  DeviceExchange& exchange_;
  const int runs_;               // R
  nn::ActivationBuffer hidden_;  // [T, D]
  std::vector<float> limits_;    // [8, R, D / 32]
  int exchanges_ = 0;            // of this step
  Status error_;                 // of the CPU's part in this step
  ffn::HybridCounters counters_;
};

}  // namespace thermocline::gpu
