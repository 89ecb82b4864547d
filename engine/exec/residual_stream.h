// The residual of the layers: layer outputs are added to it, and layers read it normed.
#pragma once

#include <vector>

#include "engine/base/worker_pool.h"
#include "engine/model/weights/weights.h"
#include "engine/nn/workspace.h"
#include "kernels/op_table.h"

namespace thermocline::exec {

// The residual of a workspace. Borrows all its parameters; allocates nothing.
class ResidualStream {
 public:
  ResidualStream(const model::ModelConfig& config, const kernels::OpTable& ops,
                 base::WorkerPool& pool, nn::Workspace& workspace)
      : config_(config), ops_(ops), pool_(pool), ws_(workspace) {}

  // hidden = norm(residual), or the residual if there is no norm, and its Q8 form, for `tokens`
  // tokens from `first` on.
  void Norm(const model::NormWeights& norm, int first, int tokens);
  // out = norm(out) [tokens, D]; unchanged if there is no norm.
  void NormOutput(const model::NormWeights& norm, std::vector<float>& out, int tokens);
  // residual += residual_scale * norm(out) [tokens, D]; with norms of the sum, residual =
  // norm(residual + out).
  void Add(const model::NormWeights& norm, std::vector<float>& out, int tokens);
  // Copies a token's row to that of an earlier one.
  void Move(int from, int to);

 private:
  const model::ModelConfig& config_;
  const kernels::OpTable& ops_;
  base::WorkerPool& pool_;
  nn::Workspace& ws_;
};

}  // namespace thermocline::exec
