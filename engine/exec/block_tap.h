// An observer of every layer's output, by which calibrations measure a layer alone.
#pragma once

namespace thermocline::exec {

class BlockTap {
 public:
  virtual ~BlockTap() = default;
  // Called with the residual [tokens, D] after a layer on the CPU; changes to it take effect. On
  // the thread that runs the forward pass.
  virtual void OnBlock(int layer, float* residual, int tokens) = 0;
};

}  // namespace thermocline::exec
