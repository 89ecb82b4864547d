// The embeddings that layers have of their own (model/altup.h): a small vector of each token, of
// which a layer makes a contribution to the residual, gated by the residual itself.
//
//   e = (norm(project x0 / root D) + root E * table[token]) / root 2,  x0 the token's embedding
//   contribution = norm(proj(act(gate x) * e of the layer))
#pragma once

#include <span>
#include <vector>

#include "engine/base/index.h"
#include "engine/model/weights/weights.h"
#include "engine/nn/multiplier.h"
#include "engine/nn/workspace.h"
#include "kernels/op_table.h"

namespace thermocline::exec {

// Decode thread only. Borrows all its parameters; allocates nothing after construction.
class LayerInputs {
 public:
  struct Params {
    const model::ModelConfig& config;
    const model::Weights& weights;
    const kernels::OpTable& ops;
    base::WorkerPool& pool;
    nn::Multiplier& multiplier;
    int tokens_max;  // T of one call
  };
  // Requires: config.altup.embedding_dim > 0.
  explicit LayerInputs(const Params& params);
  // Bytes that a construction with these sizes allocates; 0 if the family has no such embeddings.
  static std::size_t Bytes(const model::ModelConfig& config, int tokens_max);

  // Computes e of all layers for a step's tokens; `embeddings` [T, D] in both forms. Errors as
  // model::FileRows::Read.
  Status Begin(std::span<const int> tokens, const nn::ActivationBuffer& embeddings);
  // out [T, D] = the layer's contribution; `input` [T, D] in both forms.
  void Contribute(int layer, int tokens, const nn::ActivationBuffer& input, float* out);

 private:
  void Finish(int token, std::span<const float> table);
  void Multiply(const model::Linear& linear, const nn::ActivationBuffer& input, int tokens,
                float* out);

  const model::ModelConfig& config_;
  const model::Weights& weights_;
  const kernels::OpTable& ops_;
  base::WorkerPool& pool_;
  nn::Multiplier& multiplier_;
  const int size_, own_;          // D, E
  std::vector<float> inputs_;     // [T, L, E]
  std::vector<float> table_row_;  // [L, E]
  nn::ActivationBuffer gated_;    // [T, E]
};

}  // namespace thermocline::exec
