// The head of an encoder that ranks: a score of a pair of texts, from its first token's state, or
// from the mean of all states.
//
//   score = output . tanh(dense x + bias) + bias, or output . norm(gelu(dense x)) + bias
#pragma once

#include <span>
#include <vector>

#include "engine/model/weights/weights.h"
#include "engine/nn/multiplier.h"
#include "engine/nn/workspace.h"
#include "kernels/op_table.h"

namespace thermocline::exec {

// Decode thread only. Borrows all its parameters.
class RankHead {
 public:
  RankHead(const model::ModelConfig& config, const model::RankWeights& weights,
           const kernels::OpTable& ops, nn::Multiplier& multiplier);

  // `state` [D]. The score is not bounded.
  float Score(std::span<const float> state);

 private:
  const model::ModelConfig& config_;
  const model::RankWeights& weights_;
  const kernels::OpTable& ops_;
  nn::Multiplier& multiplier_;
  nn::ActivationBuffer input_;  // [1, D]
  std::vector<float> dense_;    // [D]
};

}  // namespace thermocline::exec
