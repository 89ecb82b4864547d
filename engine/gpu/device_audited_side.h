// Audits of the neurons on a device: one token's input is copied there, and the ids and h found are
// copied back. Runs between steps, on the stream and with the scratch of decoding, as one graph per
// layer, so that the host only launches it and later reads the results.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "engine/ffn/audited_side.h"
#include "engine/gpu/device_ffn.h"
#include "engine/gpu/device_health.h"
#include "engine/gpu/recorded_graph.h"

namespace thermocline::gpu {

// Decode thread only. Borrows its parameters; owns its memory on the device.
class DeviceAuditedSide final : public ffn::AuditedSide {
 public:
  struct Params {
    const DeviceModel& model;
    DeviceFfn& ffn;
    const DeviceHealth& health;
  };
  explicit DeviceAuditedSide(const Params& params);
  // The bytes of host memory that it uses.
  static std::size_t HostBytes(const model::ModelConfig& config);
  // Called at load, and again after the device was reset.
  Status Allocate();
  // Called before the device is reset.
  void DropGraphs();
  // The bytes of device memory.
  std::size_t bytes() const { return work_.bytes(); }

  // Returns 0 for layers that are whole on the device without neuron-major rows: nothing is
  // predicted there, and the CPU, which has their weights too, audits them.
  int num_neurons(int layer) const override {
    const DeviceLayer& of = model_.layer(layer);
    return of.has_rows() ? of.neurons : 0;
  }
  Status Start(int layer, const ffn::FfnInput& input, const ffn::FfnPolicy& policy) override;
  Result<Activity> ExactActivity(int layer, const ffn::FfnInput& input,
                                 const ffn::FfnPolicy& policy) override;
  Result<std::span<const int>> PredictedBy(int layer, const ffn::FfnInput& input,
                                           const ffn::FfnPolicy& policy) override;

 private:
  struct Question {
    int layer;
    FfnMode mode;
    float shift;
    bool operator==(const Question&) const = default;
  };
  // True if the last Start had the same arguments.
  bool IsStarted(const Question& question, const ffn::FfnInput& input) const;
  // Copies the input into mapped memory, and the policy's shift to the device.
  Status Prepare(int layer, const ffn::FfnInput& input, const ffn::FfnPolicy& policy);
  Status PutActivity(int layer, FfnMode mode);
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
  DeviceFfn::Input input_ = {};                          // of one token
  std::vector<RecordedGraph<FfnMode>> activity_graphs_;  // [L]
  std::optional<Question> started_;
  // Mapped host memory.
  device::MappedBuffer memory_;
  float *x_ = nullptr, *residual_ = nullptr;             // [D] to the device
  float* h_ = nullptr;                                   // [F] by neuron
  std::int32_t *predicted_ = nullptr, *live_ = nullptr;  // [F] ids
  std::int32_t* starts_ = nullptr;                       // [2, R + 1] of both
  std::vector<int> active_;                              // [F] the ids of live_ whose h is not zero
  std::vector<float> active_h_;                          // [F]
};

}  // namespace thermocline::gpu
