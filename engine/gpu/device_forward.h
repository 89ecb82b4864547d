// The part of the forward pass that is placed on a device: the layers at home there and the head
// (device_home_layers.h), and hot neurons of layers at home on the CPU (device_partition.h). Owns
// their memory and rebuilds the device's context after an error.
//
// Source: PowerInfer (Song et al. 2024), section 5; we use graphs instead of its launches.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <thread>

#include "engine/gpu/device_audited_side.h"
#include "engine/gpu/device_ffn.h"
#include "engine/gpu/device_health.h"
#include "engine/gpu/device_home_layers.h"
#include "engine/gpu/device_model.h"
#include "engine/gpu/device_partition.h"

namespace thermocline::gpu {

// Decode thread only. Borrows the model; owns its memory on the device.
class DeviceForward {
 public:
  struct Params {
    DeviceModel& model;
    const kernels::OpTable& cpu;  // of the CPU's part
    int tokens_max;               // T of one step
    int logits_max;               // tokens of one step whose logits are needed
    int context_length;           // tokens
    int parts_max = 1;            // sequences of one step
    int kv_blocks;                // of the host's pool
    kernels::KvType kv_type;
    std::size_t attention_bytes;  // as DeviceAttention::Params::scratch_bytes
    bool audits = false;          // predictions may be audited
    // Uploads the hot neurons' rows again after a reset. FailedPrecondition states why they cannot
    // be read.
    std::function<Status()> reload;
  };
  // ResourceExhausted with a table of the memory needed; Unavailable.
  static Result<std::unique_ptr<DeviceForward>> Create(Params params);
  // Bytes of device memory that Create would use: the KV cache and scratch.
  static std::size_t BytesFor(Params params);
  // Bytes of host memory that Create would use at most, for any placement. `sizes`: the sizes they
  // depend on.
  struct HostSizes {
    const model::ModelConfig& config;
    int tokens_max, logits_max, context_length;  // as Params
    int parts_max = 1;
    bool audits = false;
  };
  static std::size_t HostBytesMax(const HostSizes& sizes);
  DeviceForward(const DeviceForward&) = delete;
  DeviceForward& operator=(const DeviceForward&) = delete;

  using Step = DeviceHomeLayers::Step;
  // Computes the home layers; `cold` computes the CPU's neurons and determines the modes. Returns
  // [logits, V] if the head is on the device, otherwise [0]; valid until the next step. Unavailable
  // with the device's error: then it has failed(). The next step that begins a sequence rebuilds
  // the context, once; if that fails, or a second error follows, every later step returns an error.
  // Errors of the flash tier leave the device unchanged.
  Result<std::span<const float>> Run(const Step& step, ffn::SparseFfn& cold);

  int tokens_max() const { return tokens_max_; }
  int context_length() const { return context_length_; }
  int logits_max() const { return logits_max_; }
  int parts_max() const { return parts_max_; }
  int home_layers() const { return model_.placement().home_layers; }
  bool head() const { return model_.placement().head; }
  // The partition that computes hot neurons of the layers at home on the CPU; null: there are no
  // such neurons.
  ffn::FfnPartition* partition() const { return partition_.get(); }
  // The audited side for the device's neurons; null: Params::audits is false.
  ffn::AuditedSide* audited_side() const { return audited_.get(); }
  // The device's part of the KV cache is lost. Not usable until a sequence begins.
  bool failed() const { return health_.failed(); }
  // No later step can succeed: the process should exit and be restarted.
  bool dead() const { return health_.dead(); }

  // The counters of the shared layers.
  ffn::HybridCounters counters() const {
    return home_ != nullptr ? home_->counters() : ffn::HybridCounters{};
  }
  // Counts of the rows that the device read for decoded tokens in a home layer.
  const ffn::FfnCounters& ffn_counters(int layer) const { return home_->ffn_counters(layer); }

 private:
  explicit DeviceForward(Params params);
  std::size_t bytes() const;
  Status Allocate();
  // Prepares for a step after `cached` tokens.
  Status Ready(int cached);
  Status Rebuild();
  // Lets the work on the stream finish after an error.
  void Release();

  DeviceModel& model_;
  const int tokens_max_, logits_max_, context_length_, parts_max_;
  const std::function<Status()> reload_;
  DeviceHealth health_;
  DeviceFfn ffn_;
  std::unique_ptr<DevicePartition> partition_;  // null: no hot neurons of the CPU's layers
  std::unique_ptr<DeviceHomeLayers> home_;      // null: no layer is at home here
  std::unique_ptr<DeviceAuditedSide> audited_;  // null: no audits
  std::thread::id user_;                        // the thread for which the device was selected
};

}  // namespace thermocline::gpu
