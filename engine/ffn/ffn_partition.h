// The hot side of a feed-forward network: some of a layer's neurons, computed elsewhere (a second
// part of the CPU, a GPU) while the cold side computes the others.
//
// For one layer: Start; then, for up to kShareTokens tokens at a time, Maxima, Sum, Await, so that
// both sides' sums have the bits of one (kernels/shared_sum.h). If down rows are floats: Start,
// AwaitOutput.
#pragma once

#include "engine/ffn/expert_partition.h"
#include "engine/ffn/sparse_ffn.h"
#include "kernels/shared_sum.h"

namespace thermocline::ffn {

// Tokens that share a sum at a time; bounds the integer sums, 8 R D bytes each.
inline constexpr int kShareTokens = 8;

// Decode thread only. Status: Unavailable with the device's error.
class FfnPartition {
 public:
  virtual ~FfnPartition() = default;

  struct Job {
    int layer;
    SparseFfn::Input input;  // valid until the last Await
    FfnPolicy policy;
  };
  // Starts a layer, and returns at once.
  virtual void Start(const Job& job) = 0;
  // The maxima of the next tokens: [kShareTokens or fewer, R, D / 32], valid until the next call of
  // Maxima.
  virtual Result<const float*> Maxima() = 0;
  // Starts their sums; `limits` [tokens, R, D / 32] must stay valid until Await.
  virtual void Sum(const float* limits) = 0;
  // [tokens, R, D] valid until the next Sum.
  virtual Result<kernels::FinishSumParams::Part> Await() = 0;
  // [T, D] without the bias, valid until the next Start.
  virtual Result<const float*> AwaitOutput() = 0;

  // Number of the layer's neurons on this side.
  virtual int NumNeurons(int layer) const = 0;
  virtual PartitionCounters counters() const = 0;
  // The audited side for the neurons here; null: another class provides it.
  virtual AuditedSide* audited_side() { return nullptr; }
  // As SparseFfn's.
  virtual const FfnCounters& ffn_counters(int layer) const = 0;
};

}  // namespace thermocline::ffn
