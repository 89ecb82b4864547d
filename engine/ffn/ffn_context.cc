#include "engine/ffn/ffn_context.h"

#include "engine/nn/gate_functions.h"

namespace thermocline::ffn {

kernels::GateActivation GateOf(model::Activation activation) {
  switch (activation) {
    case model::Activation::kRelu:
      return kernels::GateActivation::kRelu;
    case model::Activation::kFatRelu:
      return kernels::GateActivation::kFatRelu;
    case model::Activation::kDRelu:
      return kernels::GateActivation::kDRelu;
    case model::Activation::kRelu2:
      return kernels::GateActivation::kRelu2;
    case model::Activation::kGelu:
      return kernels::GateActivation::kGelu;
    case model::Activation::kGeluTanh:
      return kernels::GateActivation::kGeluTanh;
    case model::Activation::kClampedSwiglu:
      return kernels::GateActivation::kClampedSwiglu;
    case model::Activation::kXielu:
      return kernels::GateActivation::kXielu;
    case model::Activation::kSilu:
      break;
  }
  return kernels::GateActivation::kSilu;
}

namespace {

kernels::Xielu XieluOf(const model::XieluConfig& stored) {
  return {.alpha_p = static_cast<float>(nn::Softplus(stored.alpha_p)),
          .alpha_n = static_cast<float>(stored.beta + nn::Softplus(stored.alpha_n)),
          .beta = static_cast<float>(stored.beta),
          .eps = static_cast<float>(stored.eps)};
}

}  // namespace

void FfnContext::Activate(int layer, kernels::GatedParams params) const {
  if (!config.xielu.empty()) params.xielu = XieluOf(config.xielu[layer]);
  Activate(params);
}

void FfnContext::Activate(kernels::GatedParams params) const {
  params.activation = GateOf(config.hidden_act);
  params.threshold = static_cast<float>(config.fatrelu_threshold);
  ops.gated(params);
}

}  // namespace thermocline::ffn
