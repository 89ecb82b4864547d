// Computes logits from the residual.
#pragma once

#include <span>

#include "engine/exec/residual_stream.h"
#include "engine/nn/multiplier.h"

namespace thermocline::exec {

// Borrows all its parameters; allocates nothing.
class OutputHead {
 public:
  struct Params {
    const model::ModelConfig& config;
    const model::Weights& weights;
    const kernels::OpTable& ops;
    nn::Multiplier& multiplier;
    ResidualStream& residual;
    nn::Workspace& workspace;
  };
  explicit OutputHead(const Params& params) : p_(params) {}

  // Returns the logits [count, V] of the first `count` tokens.
  std::span<const float> Run(int count);

 private:
  const Params p_;
};

}  // namespace thermocline::exec
