// A look at what every matrix multiplies: what importance matrices are made of.
#pragma once

#include "kernels/types.h"

namespace thermocline::nn {

class ProductTap {
 public:
  virtual ~ProductTap() = default;
  // x [tokens, weight.cols], `weight` borrowed as it lies in the model's memory; a part of it where
  // it holds all experts. On the thread that runs the forward pass.
  virtual void OnProduct(const kernels::PackedMatrix& weight, const float* x, int tokens) = 0;
};

}  // namespace thermocline::nn
