// The hot neurons, on a device, of layers whose home is the CPU.
//
// The decode thread enqueues a layer's work on the device's stream; a step of one token is a
// recorded graph for each layer. Host and device synchronise by flags (device_exchange.h), without
// a wait for the stream.
#pragma once

#include <vector>

#include "engine/base/stopwatch.h"
#include "engine/ffn/ffn_partition.h"
#include "engine/gpu/device_exchange.h"
#include "engine/gpu/device_ffn.h"
#include "engine/gpu/device_health.h"
#include "engine/gpu/recorded_graph.h"

namespace thermocline::gpu {

// Decode thread only. Borrows its parameters; owns its memory on the device.
class DevicePartition final : public ffn::FfnPartition {
 public:
  struct Params {
    const DeviceModel& model;
    DeviceFfn& ffn;
    DeviceHealth& health;  // receives the errors of the device
    int tokens_max;        // T
  };
  explicit DevicePartition(const Params& params);
  // Called at load, and again after the device was reset.
  Status Allocate();
  // Called before the device is reset.
  void DropGraphs();
  // Lets the work on the stream finish after an error.
  void Release() { exchange_.Release(); }

  std::size_t bytes() const { return work_.bytes(); }

  void Start(const Job& job) override;
  Result<const float*> Maxima() override;
  void Sum(const float* limits) override;
  Result<kernels::FinishSumParams::Part> Await() override;
  Result<const float*> AwaitOutput() override;
  int NumNeurons(int layer) const override {
    const DeviceLayer& of = model_.layer(layer);
    return of.home ? 0 : of.neurons;
  }
  ffn::PartitionCounters counters() const override { return counters_; }
  const ffn::FfnCounters& ffn_counters(int layer) const override { return ffn_counters_[layer]; }

 private:
  Status Put();
  Status PutInput(int tokens);
  Status PutBatch(int first, int tokens);
  Status PutFloats(int tokens);
  // Waits for the flag; the time counts as the device's.
  Status Wait(DeviceHandOff::Flag flag);
  // Keeps the first error of the job.
  void RecordError(const Status& status);
  // Counts the reads of the current batch, if they are to be counted.
  void Count();

  const DeviceModel& model_;
  const model::ModelConfig& config_;
  DeviceFfn& ffn_;
  DeviceHealth& health_;
  const int runs_;  // R
  DeviceExchange exchange_;
  DeviceArena work_{"input of neurons"};
  kernels::DeviceActivations hidden_;  // [T, D]
  float* residual_ = nullptr;          // [T, D]
  float* out_ = nullptr;               // [T, D] for float types
  float* limits_ = nullptr;            // [8, R, D / 32]

  // The current job.
  int layer_ = 0, tokens_ = 0, first_ = 0;
  bool decoded_ = false;
  FfnMode mode_ = FfnMode::kExact;
  Status status_;
  std::vector<RecordedGraph<FfnMode>> graphs_;  // [L] for one token
  ffn::PartitionCounters counters_;
  std::vector<ffn::FfnCounters> ffn_counters_;  // [L]
  base::Stopwatch busy_;                        // since the device started its current work
};

}  // namespace thermocline::gpu
