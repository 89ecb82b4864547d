// The activations of elementwise.h. Activations without exp, tanh and erf have the bits of the
// CPU's.
#pragma once

#include "kernels/cuda/launch.h"
#include "kernels/elementwise.h"

namespace thermocline::kernels::THERMOCLINE_CUDA {

__device__ inline float ActivateGate(GateActivation activation, float threshold, float x) {
  switch (activation) {
    case GateActivation::kSilu:
      return x / (1.0F + expf(-x));
    case GateActivation::kRelu:
    case GateActivation::kDRelu:
      return x > 0 ? x : 0.0F;
    case GateActivation::kFatRelu:
      return x >= threshold ? x : 0.0F;
    case GateActivation::kRelu2:
      return x > 0 ? x * x : 0.0F;
    case GateActivation::kGelu:
      return 0.5F * x * (1.0F + erff(x * sqrtf(0.5F)));
    case GateActivation::kGeluTanh:
      return 0.5F * x * (1.0F + tanhf(0.7978845608F * (x + 0.044715F * x * x * x)));
    case GateActivation::kXielu:
      break;  // of the CPU alone
    case GateActivation::kClampedSwiglu: {
      const float g = fminf(x, kSwigluLimit);
      return g / (1.0F + expf(-kSwigluSlope * g));
    }
  }
  return x;
}

// act(gate) * up, as defined for GatedParams.
__device__ inline float GatedValue(GateActivation activation, float threshold, float gate,
                                   float up) {
  float kept = activation == GateActivation::kDRelu && !(up > 0) ? 0.0F : up;
  if (activation == GateActivation::kClampedSwiglu)
    kept = fminf(fmaxf(up, -kSwigluLimit), kSwigluLimit) + 1.0F;
  return ActivateGate(activation, threshold, gate) * kept;
}

}  // namespace thermocline::kernels::THERMOCLINE_CUDA
