// The embedding of a step's tokens, with which the residual begins.
#pragma once

#include <vector>

#include "engine/base/worker_pool.h"
#include "engine/exec/step_tokens.h"
#include "engine/model/weights/weights.h"
#include "kernels/op_table.h"

namespace thermocline::exec {

// Decode thread only. Borrows all its parameters.
class TokenEmbedding {
 public:
  struct Params {
    const model::ModelConfig& config;
    const model::Weights& weights;
    const kernels::OpTable& ops;
    base::WorkerPool& pool;
  };
  explicit TokenEmbedding(const Params& params);

  // Writes `residual` [T, D], and overwrites `scratch` [T, D].
  void Compute(const StepTokens& step, float* residual, float* scratch);

 private:
  void AddEncoders(int token, float* x, float* row) const;
  // Sets the types of an encoder's tokens: those behind a text's first separator have another one.
  // Source: BERT's segments.
  void SetTypes(const StepTokens& step);

  const model::ModelConfig& config_;
  const model::Weights& weights_;
  const kernels::OpTable& ops_;
  base::WorkerPool& pool_;
  std::vector<float> ones_;  // [D] the weights of the embedding's norm; empty: it has none
  std::vector<int> types_;   // [T] of an encoder's tokens
};

}  // namespace thermocline::exec
