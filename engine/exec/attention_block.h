// Attention of one layer: from its normed input to its contribution to the residual.
//
// Positions are divided into chunks at fixed boundaries. Each chunk's softmax is computed alone,
// and chunks are merged in order, so the bits do not depend on the threads. The items of the
// parallel loop are tiles of a prompt's tokens, each of which reads a block's K and V once, or the
// chunks of a single token.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "engine/base/index.h"
#include "engine/base/stopwatch.h"
#include "engine/base/worker_pool.h"
#include "engine/exec/attention_gates.h"
#include "engine/exec/input_sparsity.h"
#include "engine/exec/key_origins.h"
#include "engine/exec/latent_attention.h"
#include "engine/exec/step_tokens.h"
#include "engine/model/weights/weights.h"
#include "engine/nn/multiplier.h"
#include "engine/nn/workspace.h"
#include "kernels/op_table.h"

namespace thermocline::exec {

// The work of attention in all layers so far, without the projections.
struct AttentionCounters {
  double seconds = 0;
  double scores = 0;      // pairs of a query head's row and a position
  double operations = 0;  // multiply-adds of scores and weighted values
};

// Decode thread only. Borrows all its parameters; allocates nothing after construction.
class AttentionBlock {
 public:
  struct Params {
    const model::ModelConfig& config;
    const model::Weights& weights;
    const kernels::OpTable& ops;
    base::WorkerPool& pool;
    nn::Multiplier& multiplier;
    nn::Workspace& workspace;
    InputSparsity* inputs;  // null: mode inputs is not used
    const StepTokens& step;
  };
  explicit AttentionBlock(const Params& params);
  static std::size_t Bytes(const model::ModelConfig& config, int tokens_max) {
    return LatentAttention::Bytes(config, tokens_max) + KeyOrigins::Bytes(config) +
           AttentionGates::Bytes(config, tokens_max);
  }

  // Returns the number of tokens of a sequence in a tile, chosen so that all threads have work.
  int TokensOfTile(int tokens) const;
  // kStored: StoreOnly has stored the step's K and V.
  enum class Keys { kNew, kStored };
  // Stores the step's K and V, and computes attention_out of `hidden`. `by_inputs`: the layer's
  // matrices read only the weights of inputs that count.
  void Run(int layer, bool by_inputs, Keys keys = Keys::kNew);
  // Only stores the step's K and V. Requires: the layer has its own.
  void StoreOnly(int layer);
  const AttentionCounters& counters() const { return counters_; }

 private:
  // Counts the step's scores in a layer, and the time that `watch` shows.
  void Count(int layer, const base::Stopwatch& watch);
  // The vectors that a step computes of its input: q, or k and v, or all.
  enum class Wanted { kAll, kQueries, kKeys };
  // Computes them of `hidden`, without rotation.
  void ProjectInput(int layer, bool by_inputs, Wanted wanted);
  void ProjectOutput(int layer, bool by_inputs);
  // Sets the sizes of heads, and of the buffers' rows, to those of the layer.
  void Enter(int layer);
  void RotateAndStore(int layer, int token, bool stores);
  // Returns true if the cache holds the layer's keys without their origin.
  bool HasOrigin(int layer) const;
  // Subtracts the origin from the keys [K Dh] of a position.
  void SubtractOrigin(int layer, int position, float* k) const;
  const nn::RopeTable& RopeTableOf(int layer) const;
  bool SpreadsHeads() const;
  void SpreadHeads(float* heads, int count);
  void Store(int layer, int token, const float* k, const float* v);
  // `k` is null if the layer reads another layer's keys.
  void NormQueryAndKey(const model::LayerWeights& w, float* q, float* k);
  void NormHeads(const model::NormWeights& norm, float* heads, int count);
  void Rotate(int layer, int position, float* q, float* k);
  // Returns the factor of the layer's queries at that position.
  float QueryScale(int layer, int position) const;
  // The query heads that share a kv head, of `count` tokens from `token` on.
  struct Rows {
    int token, count;
    int kv_head;
  };
  // Computes one token's attention to the cache, into ws_.attention.
  void AttendOne(int layer);
  // Computes the attention of several tokens, in tiles.
  void AttendTokens(int layer);
  void AttendTile(int layer, const Rows& rows, int thread);
  void GatherQueries(const Rows& rows, int thread);
  void AddChunk(int layer, const Rows& rows, int chunk, int thread);
  void AttendChunk(int layer, const Rows& rows, int thread, const kernels::Activations& q,
                   std::span<const kernels::PositionSpan> spans,
                   const kernels::AttentionState& state);
  // The positions that a token of the step attends to.
  kernels::PositionSpan Window(int layer, int token) const;
  // The sinks of a kv head's query heads; null if there are none.
  const float* Sinks(int layer, int kv_head) const {
    const float* sinks = weights_.layers[layer].sinks;
    return sinks == nullptr ? nullptr : sinks + kv_head * heads_.group();
  }

  // The slopes of a kv head's query heads; null unless scores fall with the distance.
  const float* Slopes(int kv_head) const {
    return slopes_.empty() ? nullptr : slopes_.data() + nn::Offset(kv_head, heads_.group());
  }

  const model::ModelConfig& config_;
  const model::Weights& weights_;
  const kernels::OpTable& ops_;
  base::WorkerPool& pool_;
  nn::Multiplier& multiplier_;
  nn::Workspace& ws_;
  InputSparsity* const inputs_;
  const StepTokens& step_;
  std::optional<LatentAttention> latent_;
  const KeyOrigins origins_;
  AttentionCounters counters_;
  model::HeadShape heads_;     // of the current layer
  int group_max_ = 1;          // the most query heads of a kv head among the layers
  std::vector<float> ones_;    // [Dh] the weights of a norm that has none
  std::vector<float> slopes_;  // [H], or empty: scores do not fall with the distance
  AttentionGates gates_;
};

}  // namespace thermocline::exec
