// The dense modules behind the pooling of some models of vectors, as sentence-transformers' Dense
// without a bias or an activation: out = W_n ... W_1 x. Source: EmbeddingGemma.
#pragma once

#include <array>
#include <vector>

#include "engine/model/weights/weights.h"
#include "engine/nn/multiplier.h"
#include "engine/nn/workspace.h"
#include "kernels/op_table.h"

namespace thermocline::exec {

// Decode thread only. Borrows its parameters.
class VectorHead {
 public:
  VectorHead(const std::array<model::Linear, model::kDenseModules>& modules,
             const kernels::OpTable& ops, nn::Multiplier& multiplier)
      : modules_(modules), ops_(ops), multiplier_(multiplier) {}

  // Returns the vector of a pooled one [D], normalized to length 1.
  std::vector<float> Apply(std::vector<float> pooled);

 private:
  const std::array<model::Linear, model::kDenseModules>& modules_;
  const kernels::OpTable& ops_;
  nn::Multiplier& multiplier_;
  nn::ActivationBuffer input_;
};

}  // namespace thermocline::exec
