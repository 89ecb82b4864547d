// Tensors of layers whose feed-forward network is a mixture of experts.
#include "engine/model/weight_plan.h"

namespace thermocline::model {

Status WeightPlan::Experts(const std::string& p, ExpertWeights& experts) {
  const ModelConfig& c = model_.config;
  const int e = c.experts.num_experts, d = c.hidden_size;
  RETURN_IF_ERROR(LinearOf(p + "ffn_gate_inp", e, d, parts_.attention, experts.router));
  // Files call it by its module or as a bias of its own.
  RETURN_IF_ERROR(OptionalVector(p + "exp_probs_b.bias", e, experts.choice_bias));
  RETURN_IF_ERROR(ExpertMatrices(p, experts));
  return c.experts.shared_intermediate_size > 0 ? SharedExpert(p, experts) : OkStatus();
}

Status WeightPlan::ExpertMatrices(const std::string& p, ExpertWeights& experts) {
  const ModelConfig& c = model_.config;
  const int d = c.hidden_size, f = c.experts.intermediate_size;
  if (c.architecture->gated) RETURN_IF_ERROR(ExpertsOf(p + "ffn_gate_exps", f, d, experts.gate));
  RETURN_IF_ERROR(ExpertsOf(p + "ffn_up_exps", f, d, experts.up));
  return ExpertsOf(p + "ffn_down_exps", d, f, experts.down);
}

Status WeightPlan::SharedExpert(const std::string& p, ExpertWeights& experts) {
  const ModelConfig& c = model_.config;
  const int d = c.hidden_size, fs = c.experts.shared_intermediate_size;
  const bool held = parts_.attention;
  if (c.architecture->gated)
    RETURN_IF_ERROR(LinearOf(p + "ffn_gate_shexp", fs, d, held, experts.shared_gate));
  RETURN_IF_ERROR(LinearOf(p + "ffn_up_shexp", fs, d, held, experts.shared_up));
  RETURN_IF_ERROR(LinearOf(p + "ffn_down_shexp", d, fs, held, experts.shared_down));
  if (!c.experts.shared_gated) return OkStatus();
  return Vector(p + "ffn_gate_inp_shexp.weight", d, experts.shared_switch);
}

Status WeightPlan::ExpertsOf(const std::string& module, int rows, int cols, Linear& out) {
  const int e = model_.config.experts.num_experts;
  ASSIGN_OR_RETURN(const TensorInfo* tensor, Find(module + ".weight", e * rows, cols, e));
  out.weight = {.type = TypeInMemory(*tensor), .rows = e * rows, .cols = cols};
  if (parts_.rest) Reserve({.tensor = tensor, .matrix = &out.weight}, out.weight.bytes());
  if (model_.Find(module + ".bias") == nullptr) return OkStatus();
  ASSIGN_OR_RETURN(const TensorInfo* bias, Find(module + ".bias", e, rows));
  if (parts_.vectors) Reserve({.tensor = bias, .vector = &out.bias}, sizeof(float) * e * rows);
  return OkStatus();
}

}  // namespace thermocline::model
