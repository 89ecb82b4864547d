// The forward pass of the layers at home on a device.
//
// What differs from token to token (positions, blocks of keys and values, embedded tokens) goes to
// the device in one small copy; a decoded token is one graph, captured for the modes at hand and
// replayed, a prompt's tokens are the same kernels without one. Of layers whose cold neurons the
// CPU has, the device hands over the normed input and goes on with its own, and both share the sum
// (kernels/shared_sum.h): the decode thread computes its part while the device computes. The
// decode thread waits for the stream once, at the end.
//
// Keys and values of these layers lie on the device, block for block as in the host's pool.
// Source: PowerInfer (Song et al. 2024), section 5; graphs in place of its launches are ours.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "engine/ffn/hybrid_ffn.h"
#include "engine/gpu/device_ffn.h"
#include "engine/gpu/device_hand_off.h"
#include "engine/gpu/device_model.h"
#include "engine/nn/kv_cache.h"

namespace thermocline::gpu {

class DevicePartition;

// Decode thread only. Borrows the model; owns its memory on the device.
class DeviceForward {
 public:
  struct Params {
    DeviceModel& model;
    const kernels::OpTable& cpu;  // of the CPU's part
    int tokens_max;               // T of one step
    int logits_max;               // tokens of one step whose logits are wanted
    int context_length;           // tokens
    int kv_blocks;                // of the host's pool
    kernels::KvType kv_type;
    std::size_t attention_bytes;  // scratch of attention, at most, or one token's
    // Uploads the hot neurons' rows again, after a reset. FailedPrecondition says why they cannot
    // be read.
    std::function<Status()> reload;
  };
  // ResourceExhausted with a table of what was needed; Unavailable.
  static Result<std::unique_ptr<DeviceForward>> Create(Params params);
  // Of the device's memory, what Create would take: keys and values, and scratch.
  static std::size_t BytesFor(Params params);
  ~DeviceForward();

  struct Step {
    float* residual;     // [T, D] embedded tokens; overwritten unless the head is on the device
    int tokens;          // T
    nn::KvCache& cache;  // reserved
    int logits;          // of so many of the last tokens, if the head is on the device
    bool lossless;
  };
  // Computes the home layers; `cold` computes the CPU's neurons and says the modes. Unavailable
  // with the device's error: then what the device held of keys and values is lost. The next step
  // that begins a sequence rebuilds the context, once; if that fails, or a second error follows,
  // every later step is refused. Errors of the flash tier leave the device as it was.
  // Returns [logits, V] if the head is here, else [0]; valid until the next step.
  Result<std::span<const float>> Run(const Step& step, ffn::SparseFfn& cold);

  int tokens_max() const { return tokens_max_; }
  int context_length() const { return context_length_; }
  int logits_max() const { return logits_max_; }
  int home_layers() const { return model_.placement().home_layers; }
  bool head() const { return model_.placement().head; }
  // Who computes hot neurons of the layers at home on the CPU; null: there are none.
  ffn::FfnPartition* partition() const;
  // What it held of keys and values is lost: whoever keeps prefixes forgets them. Not usable
  // until a sequence begins.
  bool failed() const { return !error_.ok(); }
  // No later step can work: the process should end and be started anew.
  bool dead() const { return dead_; }
  // An error that the partition met.
  void Fail(const Status& error);

  // Of the shared layers.
  const ffn::HybridCounters& counters() const { return counters_; }
  // Rows that the device read for decoded tokens, of a home layer.
  const ffn::FfnCounters& ffn_counters(int layer) const {
    return ffn_counters_[static_cast<std::size_t>(layer)];
  }

 private:
  explicit DeviceForward(Params params);
  void Plan();
  Status Allocate();
  Status Ready(const Step& step);
  Status Rebuild();
  Status RunStep(const Step& step, ffn::SparseFfn& cold);
  Status Send(const Step& step, ffn::SparseFfn& cold);
  Status Decode(const Step& step, ffn::SparseFfn& cold);
  Status Prefill(const Step& step, ffn::SparseFfn& cold);
  void Count();

  // On the stream.
  Status Layer(int layer, int tokens);
  Status Attention(int layer, int tokens, float* out, bool accumulate);
  Status FeedForward(int layer, int tokens, const DeviceFfn::Output& out);
  Status FeedForwardShared(int layer, int tokens, const DeviceFfn::Output& out);
  Status SharedBatch(int layer, int first, int tokens, const DeviceFfn::Output& out);
  Status AddHostOutput(int layer, int tokens, const DeviceFfn::Output& out);
  Status Norm(const model::NormWeights& norm, const float* x, int tokens,
              const kernels::DeviceActivations& out);
  Status Multiply(const model::Linear& matrix, const kernels::DeviceActivations& x, int tokens,
                  float* out, bool accumulate = false);
  Status Add(float* x, const float* y, int tokens);
  Status End(int tokens, int logits);
  Status Head(int first, int count);
  Status Check(kernels::DeviceError error, const char* what) const;

  // The CPU's part of a shared layer.
  Status Serve(int layer, const Step& step, ffn::SparseFfn& cold);
  Status ServeBatch(int layer, int first, int tokens, ffn::SparseFfn* cold);
  Status ServeFloats(int layer, int tokens, ffn::SparseFfn* cold);
  bool SendsResidual(int layer) const;

  DeviceModel& model_;
  const model::ModelConfig& config_;
  const kernels::DeviceOps& ops_;
  const kernels::OpTable& cpu_;
  const int tokens_max_, logits_max_, context_length_, kv_blocks_;
  const kernels::KvType kv_type_;
  const std::size_t attention_bytes_;
  const std::function<Status()> reload_;
  const int runs_;
  const std::size_t block_bytes_;  // of the home layers

  // The step: int32 positions [T], then pointers to blocks, then the residual.
  const std::size_t table_at_, residual_at_;  // bytes
  DeviceArena work_{"activations"};
  std::uint8_t* step_ = nullptr;
  kernels::DeviceActivations hidden_, q_, attention_, head_x_;  // [T, D], [T, H Dh] twice
  float *k_ = nullptr, *v_ = nullptr;                           // [T, K Dh]
  float *attention_out_ = nullptr, *ffn_out_ = nullptr;         // [T, D] of parallel blocks
  float* logits_ = nullptr;                                     // [2 logits_max, V]
  float* attention_scratch_ = nullptr;
  int attention_tokens_ = 1;  // of one call of attention: bounds its scratch
  float *cos_ = nullptr, *sin_ = nullptr;
  std::vector<float> host_cos_, host_sin_;
  device::DeviceBuffer kv_;
  device::MappedBuffer pinned_step_, pinned_result_;
  DeviceFfn ffn_;
  std::unique_ptr<DevicePartition> partition_;

  // Shared layers. Of the device: what the CPU sent.
  bool shares_ = false;
  float *other_limits_ = nullptr, *other_minimums_ = nullptr, *other_out_ = nullptr;
  std::int32_t *other_high_ = nullptr, *other_low_ = nullptr;
  DeviceHandOff hand_off_;
  struct Exchange {            // mapped
    float *x, *residual;       // [T, D] by the device
    float* maxima;             // [8, R, D / 32] by the device
    float* host_maxima[2];     // [8, R, D / 32] by the CPU: the device may be one behind
    std::int32_t *high, *low;  // [8, R, D] by the CPU
    float* minimums;           // [8, R, D / 32] by the CPU
    float* out;                // [T, D] by the CPU, float types
  };
  device::MappedBuffer mapped_;
  Exchange host_ = {}, device_ = {};
  int exchanges_put_ = 0, exchanges_served_ = 0;  // of this step
  nn::ActivationBuffer cold_hidden_;              // [T, D]
  std::vector<float> limits_;                     // [8, R, D / 32]

  std::thread::id user_;        // the device is this thread's
  std::vector<FfnMode> modes_;  // [home layers] of the step at hand
  // Of one token, without and with logits, each for the modes it was recorded for.
  struct TokenGraph {
    std::unique_ptr<device::DeviceGraph> graph;
    std::vector<FfnMode> modes;
  };
  TokenGraph graphs_[2];
  Status cold_error_;
  Status error_;  // of the device; the next sequence rebuilds it
  bool dead_ = false, rebuilt_ = false;
  ffn::HybridCounters counters_;
  std::vector<ffn::FfnCounters> ffn_counters_;
};

}  // namespace thermocline::gpu
