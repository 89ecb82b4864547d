// Tensors of recurrent layers.
#include "engine/model/weights/weight_plan.h"

namespace thermocline::model {

Status WeightPlan::Flat(const std::string& name, int n, const float*& out) {
  const TensorInfo* tensor = model_.Find(name);
  if (tensor == nullptr)
    return base::InvalidArgument(model_.path, ": tensor '", name, "' is missing");
  if (tensor->rows * tensor->cols != n)
    return base::InvalidArgument(model_.path, ": tensor '", name, "' has ",
                                 tensor->rows * tensor->cols, " elements, expected ", n);
  if (!tensor->type->dtype.has_value() || tensor->type->block_size != 1)
    return base::Unimplemented(model_.path, ": tensor '", name, "' has type ", tensor->type->name,
                               "; it must be of floats");
  used_.insert(name);
  if (parts_.vectors) Reserve({.tensor = tensor, .vector = &out}, n * sizeof(float));
  return OkStatus();
}

Status WeightPlan::Recurrent(const std::string& p, RecurrentWeights& w) {
  const ModelConfig& c = model_.config;
  const int d = c.hidden_size;
  switch (c.recurrent.kind) {
    case Mixer::kDeltaNet:
      return DeltaNet(p, w);
    case Mixer::kMamba2:
      return Mamba2(p, w);
    default:
      break;
  }
  RETURN_IF_ERROR(LinearOf(p + "shortconv.in_proj", 3 * d, d, parts_.attention, w.in));
  RETURN_IF_ERROR(Flat(p + "shortconv.conv.weight", d * c.recurrent.taps, w.conv));
  return LinearOf(p + "shortconv.out_proj", d, d, parts_.attention, w.out);
}

Status WeightPlan::DeltaNet(const std::string& p, RecurrentWeights& w) {
  const RecurrentConfig& r = model_.config.recurrent;
  const int d = model_.config.hidden_size, channels = r.channels(d);
  const bool held = parts_.attention;
  RETURN_IF_ERROR(LinearOf(p + "attn_qkv", channels, d, held, w.in));
  RETURN_IF_ERROR(LinearOf(p + "attn_gate", r.inner(), d, held, w.gate));
  if (model_.Find(p + "ssm_ba.weight") != nullptr) {
    RETURN_IF_ERROR(LinearOf(p + "ssm_ba", 2 * r.heads, d, held, w.beta_alpha));
  } else {
    RETURN_IF_ERROR(LinearOf(p + "ssm_alpha", r.heads, d, held, w.alpha));
    RETURN_IF_ERROR(LinearOf(p + "ssm_beta", r.heads, d, held, w.beta));
  }
  RETURN_IF_ERROR(Flat(p + "ssm_conv1d.weight", channels * r.taps, w.conv));
  RETURN_IF_ERROR(Flat(p + "ssm_a", r.heads, w.decay));
  RETURN_IF_ERROR(Flat(p + "ssm_dt.bias", r.heads, w.step_bias));
  RETURN_IF_ERROR(NormOf(p + "ssm_norm", r.value_dim, w.norm));
  return LinearOf(p + "ssm_out", d, r.inner(), held, w.out);
}

Status WeightPlan::Mamba2(const std::string& p, RecurrentWeights& w) {
  const RecurrentConfig& r = model_.config.recurrent;
  const int d = model_.config.hidden_size, channels = r.channels(d);
  RETURN_IF_ERROR(
      LinearOf(p + "ssm_in", r.inner() + channels + r.heads, d, parts_.attention, w.in));
  RETURN_IF_ERROR(Flat(p + "ssm_conv1d.weight", channels * r.taps, w.conv));
  if (model_.Find(p + "ssm_conv1d.bias") != nullptr)
    RETURN_IF_ERROR(Flat(p + "ssm_conv1d.bias", channels, w.conv_bias));
  RETURN_IF_ERROR(Flat(p + "ssm_a", r.heads, w.decay));
  RETURN_IF_ERROR(Flat(p + "ssm_d", r.heads, w.skip));
  RETURN_IF_ERROR(Flat(p + "ssm_dt.bias", r.heads, w.step_bias));
  RETURN_IF_ERROR(Flat(p + "ssm_norm.weight", r.inner(), w.norm.weight));
  return LinearOf(p + "ssm_out", d, r.inner(), parts_.attention, w.out);
}

}  // namespace thermocline::model
