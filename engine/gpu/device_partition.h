// A hot side on a device: neurons of layers that are at home on the CPU.
//
// The decode thread puts a layer's steps on the device's stream, for one token as a graph of the
// layer, and both ends meet by flags (device_hand_off.h): no wait for the stream.
#pragma once

#include <memory>
#include <vector>

#include "engine/ffn/ffn_partition.h"
#include "engine/gpu/device_ffn.h"
#include "engine/gpu/device_hand_off.h"

namespace thermocline::gpu {

class DeviceForward;

// Decode thread only. Owned by its DeviceForward, which is told of errors of the device.
class DevicePartition final : public ffn::FfnPartition {
 public:
  struct Params {
    const DeviceModel& model;
    DeviceFfn& ffn;
    DeviceForward& owner;
    int tokens_max;  // T
  };
  explicit DevicePartition(const Params& params);
  // At load, and again after the device was reset.
  Status Allocate();
  // Before the device is reset.
  void DropGraphs();
  // Lets what is on the stream end, after an error.
  void Release();

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
  const ffn::FfnCounters& ffn_counters(int layer) const override {
    return ffn_counters_[static_cast<std::size_t>(layer)];
  }

 private:
  Status Put();
  Status PutInput(int tokens);
  Status PutBatch(int first, int tokens);
  Status PutFloats(int tokens);
  // Waits for the flag; the time counts as the device's.
  Status Wait(DeviceHandOff::Flag flag);
  // Keeps the first error, and tells the owner.
  void Note(const Status& status);
  void Count();

  const DeviceModel& model_;
  const model::ModelConfig& config_;
  DeviceFfn& ffn_;
  DeviceForward& owner_;
  const int tokens_max_, runs_;
  DeviceHandOff hand_off_;
  DeviceArena work_{"input of neurons"};
  kernels::DeviceActivations hidden_;  // [T, D]
  float* residual_ = nullptr;          // [T, D]
  float* out_ = nullptr;               // [T, D] of float types
  float* limits_ = nullptr;            // [8, R, D / 32]
  device::MappedBuffer mapped_;
  struct Exchange {            // mapped
    float *x, *residual;       // [T, D] by the CPU
    float* limits;             // [8, R, D / 32] by the CPU
    float *maxima, *minimums;  // [8, R, D / 32] by the device
    std::int32_t *high, *low;  // [8, R, D] by the device
    float* out;                // [T, D] by the device
  };
  Exchange host_ = {}, device_ = {};

  // The job at hand.
  int layer_ = 0, tokens_ = 0, first_ = 0;
  FfnMode mode_ = FfnMode::kExact;
  Status status_;
  // Of one token, by layer, each for the mode it was recorded for.
  struct LayerGraph {
    std::unique_ptr<device::DeviceGraph> graph;
    FfnMode mode = FfnMode::kDense;
  };
  std::vector<LayerGraph> graphs_;  // [L]
  ffn::PartitionCounters counters_;
  std::vector<ffn::FfnCounters> ffn_counters_;  // [L]
  double since_ = 0;
};

}  // namespace thermocline::gpu
