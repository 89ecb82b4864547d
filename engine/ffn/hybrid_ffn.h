// A feed-forward network whose neurons are split between a cold side, this process's kernel
// threads, and a hot one, computed at the same time. If down rows are q8_0 or q4_0 the result has
// the bits of one side computing all; if they have minimums (q4_1, q4_k) or are floats, sums of
// floats are added by side, in one fixed order. Source: PowerInfer (Song et al. 2024), section 5.3:
// both sides compute, one merges.
#pragma once

#include <functional>
#include <vector>

#include "engine/ffn/side_sums.h"

namespace thermocline::ffn {

// Decode thread only. Borrows everything; allocates nothing after construction.
class HybridFfn {
 public:
  struct Params {
    const model::ModelConfig& config;
    const model::Weights& weights;
    const kernels::OpTable& ops;
    base::WorkerPool& pool;
    SparseFfn& cold;
    FfnPartition& hot;
    int tokens_max;  // T
  };
  explicit HybridFfn(const Params& params);
  // Upper bound of the bytes that it allocates.
  static std::size_t Bytes(const model::ModelConfig& config, int tokens_max) {
    return SideSums::Bytes(config, tokens_max);
  }

  // As SparseFfn::Run. Errors: of the flash tier, or Unavailable from the hot side's device.
  Status Run(int layer, const SparseFfn::Input& input, bool lossless, float* out);
  HybridCounters counters() const;
  const FfnPartition& hot() const { return hot_; }
  FfnPartition& hot() { return hot_; }

 private:
  Status RunBoth(int layer, const SparseFfn::Input& input, bool lossless, float* out);
  Status AddOutputs(int layer, int tokens, float* out);
  // For tokens [first, first + count): exchanges the maxima with the hot side, has both sides sum
  // under the same limits, and finishes the outputs.
  Status ComputeSharedSums(int layer, int first, int count, float* out);
  void Finish(int layer, int count, const kernels::FinishSumParams::Part& hot, float* out);
  // Completes the hot side's calls for the layer after the cold side failed.
  void Drain(int tokens);
  template <typename Body>
  auto Waiting(const Body& body);

  const model::ModelConfig& config_;
  const model::Weights& weights_;
  const kernels::OpTable& ops_;
  base::WorkerPool& pool_;
  SparseFfn& cold_;
  FfnPartition& hot_;
  const int runs_;
  SideSums sums_;  // of the cold side; its maxima become both sides' limits; empty for float types
  HybridCounters counters_;
};

}  // namespace thermocline::ffn
