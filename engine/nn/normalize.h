// The norm of the model's family.
#pragma once

#include "engine/model/weights/weights.h"
#include "kernels/op_table.h"

namespace thermocline::nn {

// out = norm(x), both [n]; out may be x.
inline void Normalize(const kernels::OpTable& ops, const model::ModelConfig& config,
                      const model::NormWeights& norm, const float* x, int n, float* out) {
  const auto eps = norm.eps > 0 ? norm.eps : static_cast<float>(config.norm_eps);
  if (config.architecture->norm == model::Norm::kRms) {
    ops.rms_norm({.x = x, .weight = norm.weight, .n = n, .eps = eps, .out = out});
  } else {
    ops.layer_norm(
        {.x = x, .weight = norm.weight, .bias = norm.bias, .n = n, .eps = eps, .out = out});
  }
}

}  // namespace thermocline::nn
