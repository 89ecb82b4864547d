// Answers audits about the neurons on a device: one token's input goes there, the ids and h that
// are found come back. It runs between steps, on the stream and with the scratch that decoding
// uses: a graph for each layer, so that the host only launches and later looks.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "engine/ffn/audited_side.h"
#include "engine/gpu/device_ffn.h"
#include "engine/gpu/device_health.h"
#include "engine/gpu/recorded_graph.h"

namespace thermocline::gpu {

// Decode thread only. Borrows all it is given; owns its memory on the device.
class DeviceAuditedSide final : public ffn::AuditedSide {
 public:
  struct Params {
    const DeviceModel& model;
    DeviceFfn& ffn;
    const DeviceHealth& health;
  };
  explicit DeviceAuditedSide(const Params& params);
  // The bytes of the host's memory that it takes.
  static std::size_t HostBytes(const model::ModelConfig& config);
  // At load, and again after the device was reset.
  Status Allocate();
  // Before the device is reset.
  void DropGraphs();
  // The bytes of the device's memory.
  std::size_t bytes() const { return work_.bytes(); }

  // Returns 0 for layers that are whole on the device without neuron-major rows: nothing is
  // predicted there, and the CPU, which has their weights, too, answers for them.
  int num_neurons(int layer) const override {
    const DeviceLayer& of = model_.layer(layer);
    return of.has_rows() ? of.neurons : 0;
  }
  Status Start(int layer, const ffn::FfnInput& input, const ffn::FfnPolicy& policy) override;
  Result<Look> LookAt(int layer, const ffn::FfnInput& input, const ffn::FfnPolicy& policy) override;
  Result<std::span<const int>> PredictedBy(int layer, const ffn::FfnInput& input,
                                           const ffn::FfnPolicy& policy) override;

 private:
  struct Question {
    int layer;
    FfnMode mode;
    float shift;
    bool operator==(const Question&) const = default;
  };
  // True if the last Start had the same question.
  bool IsStarted(const Question& question, const ffn::FfnInput& input) const;
  // The input into mapped memory, the policy's numbers to the device.
  Status Prepare(int layer, const ffn::FfnInput& input, const ffn::FfnPolicy& policy);
  Status PutLook(int layer, FfnMode mode);
  Status PutInput(FfnMode mode);
  Status PutPrediction(int layer, FfnMode mode);
  // The results of the last look.
  std::span<const int> predicted() const;
  ffn::FoundNeurons TakeActive();

  const DeviceModel& model_;
  const model::ModelConfig& config_;
  DeviceFfn& ffn_;
  const DeviceHealth& health_;
  DeviceArena work_{"input of audits"};
  DeviceFfn::Input input_ = {};                // one token's
  std::vector<RecordedGraph<FfnMode>> looks_;  // [L]
  std::optional<Question> started_;
  // On the host, mapped.
  device::MappedBuffer memory_;
  float *x_ = nullptr, *residual_ = nullptr;             // [D] to the device
  float* h_ = nullptr;                                   // [F] by neuron
  std::int32_t *predicted_ = nullptr, *live_ = nullptr;  // [F] ids
  std::int32_t* starts_ = nullptr;                       // [2, R + 1] of both
  std::vector<int> active_;                              // [F] those of live_ whose h is not zero
  std::vector<float> active_h_;                          // [F]
};

}  // namespace thermocline::gpu
