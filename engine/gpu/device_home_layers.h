// The layers at home on a device, a step at a time, and the head if it is there.
//
// What differs from token to token goes to the device in one small copy (device_step.h). A decoded
// token, or up to kGraphTokensMax that are verified, is one graph, recorded for the modes at hand
// and replayed; another one where the step's first token is audited, with copies of what its
// networks read (device_taps.h). A prompt's tokens are the same kernels without a graph. Of layers
// whose cold neurons the CPU has, the decode thread computes its part while the device computes. It
// waits for the stream once, at the end.
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

// Decode thread only. Borrows all it is given; owns its memory on the device.
class DeviceHomeLayers {
 public:
  struct Params {
    const DeviceModel& model;
    const kernels::OpTable& cpu;  // of the CPU's part
    DeviceFfn& ffn;
    DeviceHealth& health;  // learns the errors of the device
    int tokens_max;        // T of one step
    int logits_max;        // tokens of one step whose logits are wanted
    int context_length;    // tokens
    int parts_max;         // sequences of one step
    int kv_blocks;         // of the host's pool
    kernels::KvType kv_type;
    std::size_t attention_bytes;  // scratch of attention, at most, or one token's
    bool audits;                  // steps may be audited
  };
  explicit DeviceHomeLayers(const Params& params);
  DeviceHomeLayers(const DeviceHomeLayers&) = delete;
  DeviceHomeLayers& operator=(const DeviceHomeLayers&) = delete;
  // At load, and again after the device was reset. ResourceExhausted with a table of what was
  // needed; Unavailable.
  Status Allocate();
  // Before the device is reset.
  void DropGraphs();
  // Lets what is on the stream end, after an error.
  void Release();
  // The bytes of the device's memory.
  std::size_t bytes() const { return kv_.bytes() + work_.bytes(); }

  struct Step {
    float* residual;  // [T, D] embedded tokens; overwritten unless the head is on the device
    int tokens;       // T
    std::span<const DevicePart> parts;  // whose tokens they are
    int logits;                         // the parts' rows, if the head is on the device
    bool lossless;
    bool decoded = false;             // some are of answers: what is read is counted
    ffn::Auditor* auditor = nullptr;  // keeps what it wants of the first token
  };
  // Computes the layers; `cold` computes the CPU's neurons and says the modes. Returns [logits, V]
  // if the head is here, part by part, else [0]; valid until the next step. Errors: the flash
  // tier's, which leave the device as it was; Unavailable from the device, which `health` knows
  // then.
  Result<std::span<const float>> Run(const Step& step, ffn::SparseFfn& cold);

  // The counters of the shared layers.
  ffn::HybridCounters counters() const;
  // Rows that the device read for decoded tokens.
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
  // The mode of each layer, and its numbers.
  Status SetModes(const Step& step, const ffn::SparseFfn& cold);
  // A decoded token, or a few that are verified: one graph.
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
  std::vector<FfnMode> modes_;      // [home layers] of the step at hand
  // The graphs of steps of few tokens, by their number, whose logits they want and whether they are
  // audited; recorded when first met.
  std::vector<RecordedGraph<std::vector<FfnMode>>> graphs_;
  ffn::PartitionCounters hot_;                  // of the shared layers
  std::vector<ffn::FfnCounters> ffn_counters_;  // [home layers]
};

}  // namespace thermocline::gpu
