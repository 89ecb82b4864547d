// The layers at home on a device, a step at a time, and the head if it is there.
//
// Values that differ from token to token are sent to the device in one small copy (device_step.h).
// A decoded token, or up to kGraphTokensMax tokens that are verified, is one graph, recorded for
// the current modes and replayed; there is another graph for steps whose first token is audited,
// which also copies the inputs of its networks (device_taps.h). Prefill runs the same kernels
// without a graph. In layers whose cold neurons are on the CPU, the decode thread computes the
// CPU's part while the device computes. It waits for the stream once, at the end.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/gpu/device_head.h"
#include "engine/gpu/device_health.h"
#include "engine/gpu/device_layer_forward.h"
#include "engine/gpu/device_taps.h"
#include "engine/gpu/host_shared_ffn.h"
#include "engine/gpu/recorded_graph.h"

namespace thermocline::gpu {

// Decode thread only. Borrows its parameters; owns its memory on the device.
class DeviceHomeLayers {
 public:
  struct Params {
    const DeviceModel& model;
    const kernels::OpTable& cpu;  // of the CPU's part
    DeviceFfn& ffn;
    DeviceHealth& health;  // receives the errors of the device
    int tokens_max;        // T of one step
    int logits_max;        // tokens of one step whose logits are needed
    int context_length;    // tokens
    int parts_max;         // sequences of one step
    int kv_blocks;         // of the host's pool
    kernels::KvType kv_type;
    std::size_t attention_bytes;  // as DeviceAttention::Params::scratch_bytes
    bool audits;                  // steps may be audited
  };
  explicit DeviceHomeLayers(const Params& params);
  DeviceHomeLayers(const DeviceHomeLayers&) = delete;
  DeviceHomeLayers& operator=(const DeviceHomeLayers&) = delete;
  // Called at load, and again after the device was reset. ResourceExhausted with a table of the
  // memory needed; Unavailable.
  Status Allocate();
  // Called before the device is reset.
  void DropGraphs();
  // Lets the work on the stream finish after an error.
  void Release();
  // The bytes of device memory.
  std::size_t bytes() const { return kv_.bytes() + work_.bytes(); }

  struct Step {
    float* residual;  // [T, D] embedded tokens; overwritten unless the head is on the device
    int tokens;       // T
    std::span<const DevicePart> parts;  // the sequences of the tokens
    int logits;                         // total rows of the parts, if the head is on the device
    bool lossless;
    bool decoded = false;             // some tokens belong to answers: reads are counted
    ffn::Auditor* auditor = nullptr;  // stores the inputs it needs of the first token
  };
  // Computes the layers; `cold` computes the CPU's neurons and determines the modes. Returns
  // [logits, V] if the head is on the device, part by part, otherwise [0]; valid until the next
  // step. Errors: the flash tier's, which leave the device unchanged; Unavailable from the device,
  // which `health` has recorded.
  Result<std::span<const float>> Run(const Step& step, ffn::SparseFfn& cold);

  // The counters of the shared layers.
  ffn::HybridCounters counters() const;
  // Counts of the rows that the device read for decoded tokens.
  const ffn::FfnCounters& ffn_counters(int layer) const { return ffn_counters_[layer]; }

 private:
  // Both ends of the layers that the CPU has a part of.
  struct Shared {
    Shared(const Params& params, DeviceArena& arena);
    DeviceExchange exchange;
    DeviceSharedFfn device;
    HostSharedFfn host;
  };
  std::unique_ptr<Shared> MakeShared(const Params& params);
  Status RunStep(const Step& step, ffn::SparseFfn& cold);
  // Sets each layer's mode, and its shift of the predictor's threshold.
  Status SetModes(const Step& step, const ffn::SparseFfn& cold);
  // Runs a decoded token, or a few that are verified, as one graph.
  Status Replay(const Step& step, ffn::SparseFfn& cold);
  Status Prefill(const Step& step, ffn::SparseFfn& cold);
  Status PutEnd(const Step& step);
  Status GatherRows(const Step& step);
  bool IsReplayed(const Step& step) const;
  int GraphOf(const Step& step) const;
  void Count(const Step& step);
  void CountWhole(int layer, ffn::FfnCounters& to) const;

  const DeviceModel& model_;
  DeviceFfn& ffn_;
  DeviceHealth& health_;
  const int layers_;
  DeviceArena work_{"activations"};
  DeviceKvCache kv_;
  DeviceStep step_;
  DeviceTaps taps_;
  std::unique_ptr<Shared> shared_;  // null: no layer is shared
  DeviceLayerForward layer_;
  std::optional<DeviceHead> head_;  // none: it is on the CPU
  std::vector<FfnMode> modes_;      // [home layers] of the current step
  // The graphs of steps of few tokens, by number of tokens, by the logits they compute and by
  // audits; recorded on first use.
  std::vector<RecordedGraph<std::vector<FfnMode>>> graphs_;
  ffn::PartitionCounters hot_;                  // of the shared layers
  std::vector<ffn::FfnCounters> ffn_counters_;  // [home layers]
};

}  // namespace thermocline::gpu
