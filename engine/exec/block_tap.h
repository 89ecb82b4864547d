// A look at what every layer gives the next: what calibrations measure a layer alone by.
#pragma once

namespace thermocline::exec {

class BlockTap {
 public:
  virtual ~BlockTap() = default;
  // The residual [tokens, D] behind a layer on the CPU; what is written there goes on. On the
  // thread that runs the forward pass.
  virtual void OnBlock(int layer, float* residual, int tokens) = 0;
};

}  // namespace thermocline::exec
