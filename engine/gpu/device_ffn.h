// The feed-forward network of one layer on a device: of the neurons that are there, for a few
// tokens at a time, put on the device's stream.
//
// The steps are SparseFfn's: predict, multiply the deciding rows of the predicted and up's rows of
// those that live, then sum the down rows: in one launch, or, if the CPU has a part of the layer,
// in the three steps of kernels/shared_sum.h. Lists stay on the device, so what is put on the
// stream depends on the layer, its mode and the number of tokens alone: it can be recorded as a
// graph.
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
  // At load, and again after the device was reset. ResourceExhausted as DeviceArena::Allocate.
  Status Allocate();

  struct Input {
    kernels::DeviceActivations hidden;  // [T, D] normed, with its Q8 form
    float* residual;                    // [T, D] before the norm; read by some predictors
    int tokens;                         // T
  };
  // Has the numbers of the policies that differ from those of earlier calls copied. Before the
  // steps, or audits, that they are for.
  Status SetShift(int layer, const ffn::FfnPolicy& policy);

  // Finds the live neurons of up to kSparseTokensMax tokens, and their h. Then Maxima (quantised
  // down rows only), Sum and Finish of the same tokens.
  Status Find(int layer, FfnMode mode, const Input& input);
  Status Maxima(int layer, int tokens);
  // With the larger of both sides' maxima as limits; `other` [T, R, D / 32] or null.
  Status Sum(int layer, int tokens, const float* other);
  // The part that another side adds to Finish.
  struct Other {
    const float* limits = nullptr;  // as Sum's `other`
    const std::int32_t* high = nullptr;
    const std::int32_t* low = nullptr;
    const float* minimums = nullptr;
  };
  // out [T, D] = the sums, bias added, or += them.
  struct Output {
    float* data;
    bool accumulate;
    bool add_bias = true;
  };
  Status Finish(int layer, int tokens, const Other* other, const Output& out);
  // Maxima, Sum and Finish in one launch, where the CPU has no part.
  Status Down(int layer, int tokens, const Output& out);
  // All steps, for any number of tokens, where the CPU has no part.
  Status Run(int layer, FfnMode mode, const Input& input, const Output& out);

  // The prediction alone. For audits.
  Status Predict(int layer, FfnMode mode, const Input& input);
  // The lists that the last Predict, which Find begins with, and the last Find left on the device.
  struct Lists {
    const std::int32_t *predicted, *live;  // [F] ids, ascending
    const std::int32_t* starts;            // [2, R + 1] of both: their last ones are the numbers
    const float* h;                        // [T, F] by neuron, where it lives
  };
  Lists lists(int layer) const {
    return {predicted_.ids, live_.ids, SetOf(predicted_, layer, 0).starts, h_};
  }

  // The results of the last Maxima and Sum. [T, R, D / 32] and [T, R, D].
  const float* maxima() const { return maxima_; }
  const std::int32_t* high() const { return high_; }
  const std::int32_t* low() const { return low_; }
  const float* minimums() const { return minimums_; }

  // The counts of a layer's last Find, after ReadCounts and the wait for the stream.
  struct Counts {
    int predicted, live;
  };
  Status ReadCounts(int first_layer, int layers);
  Counts counts(int layer) const;
  // The counts of a layer with every neuron taken as read.
  Counts all(int layer) const;
  // Adds the reads that `found` implies for `tokens` tokens together, but for the steps. Requires:
  // down rows.
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
    float least;         // of a logit, or of |act|
    std::int32_t score;  // of the sign predictor
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
  kernels::NeuronSet predicted_ = {}, live_ = {};  // of the layer at hand; starts are in starts_
  float *gate_ = nullptr, *h_ = nullptr;           // [16, F]; [T, F] where there are no down rows
  kernels::DeviceActivations dense_h_;             // [T, F] where there are no down rows
  float* maxima_ = nullptr;                        // [16, R, D / 32]
  float* minimums_ = nullptr;                      // the same
  std::int32_t *high_ = nullptr, *low_ = nullptr;  // [16, R, D]
  float* sums_ = nullptr;                          // [16, R, D] of float types
  kernels::DeviceActivations low_rank_input_, low_rank_hidden_;  // [16, D], [16, rank]
  std::int32_t* tickets_ = nullptr;                              // of down_rows
  float* logits_ = nullptr;                                      // [16, F]
  std::uint64_t* sign_words_ = nullptr;                          // [16, words]
  std::int32_t* sign_totals_ = nullptr;                          // [16]
};

}  // namespace thermocline::gpu
