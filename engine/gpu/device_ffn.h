// The feed-forward network of one layer on a device, for the neurons that are there and a few
// tokens at a time, enqueued on the device's stream.
//
// The steps are SparseFfn's: predict, multiply the deciding rows of the predicted neurons and up's
// rows of the live ones, then sum the down rows: in one launch or, if the CPU has a part of the
// layer, in the three steps of kernels/shared_sum.h. Lists stay on the device, so the enqueued work
// depends only on the layer, its mode and the number of tokens, and can be recorded as a graph.
#pragma once

#include <span>

#include "engine/ffn/sparse_ffn.h"
#include "engine/gpu/device_activations.h"
#include "engine/gpu/device_model.h"
#include "kernels/shared_sum.h"

namespace thermocline::gpu {

// Decode thread only. Borrows the model; owns scratch on the device. All errors are Unavailable
// with the device's text.
class DeviceFfn {
 public:
  struct Params {
    const DeviceModel& model;
    int tokens_max;  // T of layers without down rows
  };
  explicit DeviceFfn(const Params& params);
  // Called at load, and again after the device was reset. ResourceExhausted as
  // DeviceArena::Allocate.
  Status Allocate();

  struct Input {
    kernels::DeviceActivations hidden;  // [T, D] normed, with its Q8 form
    float* residual;                    // [T, D] before the norm; read by some predictors
    int tokens;                         // T
  };
  // Copies the policy's shift of the predictor's threshold to the device if it differs from that of
  // the last call. Called before the steps or audits that use the policy.
  Status SetShift(int layer, const ffn::FfnPolicy& policy);

  // Finds the live neurons of up to kSparseTokensMax tokens, and their h. Followed by Maxima
  // (quantised down rows only), Sum and Finish of the same tokens.
  Status Find(int layer, FfnMode mode, const Input& input);
  Status Maxima(int layer, int tokens);
  // Sums with the larger of both sides' maxima as limits; `other` [T, R, D / 32] or null.
  Status Sum(int layer, int tokens, const float* other);
  // The other side's part of the sums.
  struct Other {
    const float* limits = nullptr;  // as Sum's `other`
    const std::int32_t* high = nullptr;
    const std::int32_t* low = nullptr;
    const float* minimums = nullptr;
  };
  // out [T, D] = the sums, bias added, or += if `accumulate`.
  struct Output {
    float* data;
    bool accumulate;
    bool add_bias = true;
  };
  Status Finish(int layer, int tokens, const Other* other, const Output& out);
  // Maxima, Sum and Finish in one launch, if the CPU has no part of the layer.
  Status Down(int layer, int tokens, const Output& out);
  // All steps, for any number of tokens, if the CPU has no part of the layer.
  Status Run(int layer, FfnMode mode, const Input& input, const Output& out);

  // Runs the prediction alone, for audits.
  Status Predict(int layer, FfnMode mode, const Input& input);
  // The lists left on the device by the last Predict (part of Find) and the last Find.
  struct Lists {
    const std::int32_t *predicted, *live;  // [F] ids, ascending
    const std::int32_t* starts;            // [2, R + 1] of both lists: the last elements are their
                                           // sizes
    const float* h;                        // [T, F] by neuron, valid for live neurons
  };
  Lists lists(int layer) const {
    return {predicted_.ids, live_.ids, SetOf(predicted_, layer, 0).starts, h_};
  }

  // The results of the last Maxima and Sum. [T, R, D / 32] and [T, R, D].
  const float* maxima() const { return maxima_; }
  const std::int32_t* high() const { return high_; }
  const std::int32_t* low() const { return low_; }
  const float* minimums() const { return minimums_; }

  // The counts of a layer's last Find, after ReadCounts and a wait for the stream.
  struct Counts {
    int predicted, live;
  };
  Status ReadCounts(int first_layer, int layers);
  Counts counts(int layer) const;
  // The counts of a layer if every neuron were read.
  Counts all(int layer) const;
  // Adds the reads of a step with the counts `found` and `tokens` tokens, except the number of
  // steps. Requires: down rows.
  void AddCounts(int layer, FfnMode mode, const Counts& found, int tokens,
                 ffn::FfnCounters& to) const;

  std::size_t bytes() const { return scratch_.bytes(); }
  int runs() const { return runs_; }
  static bool SumsFloats(const DeviceLayer& layer) {
    return !kernels::Traits(layer.down.type).quantized;
  }
  static bool HasMinimums(const DeviceLayer& layer) {
    return layer.down.type == kernels::DType::kQ4_1 || layer.down.type == kernels::DType::kQ4_K;
  }

 private:
  struct Shift {
    float least;         // threshold for a logit, or for |act|
    std::int32_t score;  // threshold for the sign predictor
    bool operator==(const Shift&) const = default;
  };
  Status PredictSign(const DeviceLayer& w, const Shift* shift, const Input& input,
                     const kernels::NeuronSet& out);
  Status PredictLowRank(const DeviceLayer& w, const Shift* shift, const Input& input,
                        const kernels::NeuronSet& out);
  Status RunDense(const DeviceLayer& w, const Input& input, const Output& out);
  Status Check(kernels::DeviceError error, const char* what) const;
  std::int32_t* host_starts() const;
  kernels::NeuronSet SetOf(const kernels::NeuronSet& set, int layer, int which) const;
  kernels::DeviceSumRowsParams SumParams(int layer, int tokens, const float* other) const;
  kernels::DeviceFinishSumParams FinishParams(int layer, int tokens, const Other* other,
                                              const Output& out) const;

  const DeviceModel& model_;
  const model::ModelConfig& config_;
  const kernels::DeviceOps& ops_;
  const int runs_;  // R
  const kernels::GateActivation activation_;
  DeviceArena scratch_{"scratch of the feed-forward networks"};
  device::MappedBuffer pinned_;                    // shifts, then starts
  Shift* shifts_ = nullptr;                        // [L]
  std::int32_t* starts_ = nullptr;                 // [L, 2, R + 1] of predicted and live
  kernels::NeuronSet predicted_ = {}, live_ = {};  // of the current layer; starts are in starts_
  float *gate_ = nullptr, *h_ = nullptr;           // [16, F]; [T, F] if there are no down rows
  kernels::DeviceActivations dense_h_;             // [T, F] if there are no down rows
  float* maxima_ = nullptr;                        // [16, R, D / 32]
  float* minimums_ = nullptr;                      // the same
  std::int32_t *high_ = nullptr, *low_ = nullptr;  // [16, R, D]
  float* sums_ = nullptr;                          // [16, R, D] for float types
  kernels::DeviceActivations low_rank_input_, low_rank_hidden_;  // [16, D], [16, rank]
  std::int32_t* tickets_ = nullptr;                              // of down_rows
  float* logits_ = nullptr;                                      // [16, F]
  std::uint64_t* sign_words_ = nullptr;                          // [16, words]
  std::int32_t* sign_totals_ = nullptr;                          // [16]
};

}  // namespace thermocline::gpu
