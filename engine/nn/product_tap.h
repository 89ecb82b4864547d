// An observer of the inputs of every matrix product, from which importance matrices are computed.
#pragma once

#include "kernels/types.h"

namespace thermocline::nn {

class ProductTap {
 public:
  virtual ~ProductTap() = default;
  // x [tokens, weight.cols]. `weight` is borrowed, in its layout in the model's memory; a part of
  // it if it holds all experts. Called on the thread that runs the forward pass.
  virtual void OnProduct(const kernels::PackedMatrix& weight, const float* x, int tokens) = 0;
};

}  // namespace thermocline::nn
