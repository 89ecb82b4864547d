// Tensors of layers whose feed-forward network is a mixture of experts.
#include "engine/model/expert_rows.h"
#include "engine/model/weights/weight_plan.h"
#include "kernels/quantize.h"

namespace thermocline::model {

using kernels::DType;

Status WeightPlan::Experts(const std::string& p, ExpertWeights& experts) {
  const ModelConfig& c = model_.config;
  const int e = c.experts.num_experts, d = c.hidden_size;
  RETURN_IF_ERROR(LinearOf(p + "ffn_gate_inp", e, d, parts_.attention, experts.router));
  if (c.architecture->biased)
    RETURN_IF_ERROR(Require(
        p, {"ffn_gate_inp.bias", "ffn_gate_exps.bias", "ffn_up_exps.bias", "ffn_down_exps.bias"}));
  if (c.experts.router.choice_bias) RETURN_IF_ERROR(Require(p, {"exp_probs_b.bias"}));
  // The name in files is that of its module, or of a separate bias.
  RETURN_IF_ERROR(OptionalVector(p + "exp_probs_b.bias", e, experts.choice_bias));
  if (c.experts.router.input == RouterInput::kNormedResidual) {
    RETURN_IF_ERROR(Vector(p + "ffn_gate_inp.scale", d, experts.router_scale));
    RETURN_IF_ERROR(OptionalVector(p + "ffn_down_exps.scale", e, experts.weight_scale));
  }
  RETURN_IF_ERROR(ExpertMatrices(p, experts));
  return c.experts.shared_intermediate_size > 0 ? SharedExpert(p, experts) : OkStatus();
}

Status WeightPlan::ExpertMatrices(const std::string& p, ExpertWeights& experts) {
  const ModelConfig& c = model_.config;
  const int d = c.hidden_size, f = c.experts.intermediate_size;
  const bool rows = model_.Find(p + std::string(kExpertDownRows)) != nullptr;
  experts.gate_layout = rows ? options_.gate : Layout::kPanels;
  experts.up_layout = rows ? options_.up : Layout::kPanels;
  if (c.architecture->gated)
    RETURN_IF_ERROR(ExpertsOf(p + "ffn_gate_exps", f, d, experts.gate_layout, experts.gate));
  RETURN_IF_ERROR(ExpertsOf(p + "ffn_up_exps", f, d, experts.up_layout, experts.up));
  if (rows) return ExpertDownRows(p, experts);
  return ExpertsOf(p + "ffn_down_exps", d, f, Layout::kPanels, experts.down);
}

Status WeightPlan::ExpertDownRows(const std::string& p, ExpertWeights& experts) {
  const int e = model_.config.experts.num_experts, f = model_.config.experts.intermediate_size,
            d = model_.config.hidden_size;
  ASSIGN_OR_RETURN(const TensorInfo* tensor, Find(p + std::string(kExpertDownRows), e * f, d, e));
  const DType type = kernels::SummableType(TypeInMemory(*tensor), d);
  experts.down_rows = {.type = type, .rows = e * f, .cols = d};
  if (parts_.rest)
    Reserve({.tensor = tensor, .rows = &experts.down_rows, .layout = Layout::kRows},
            experts.down_rows.bytes());
  if (model_.Find(p + "ffn_down_exps.bias") == nullptr) return OkStatus();
  ASSIGN_OR_RETURN(const TensorInfo* bias, Find(p + "ffn_down_exps.bias", e, d));
  if (parts_.vectors)
    Reserve({.tensor = bias, .vector = &experts.down.bias}, sizeof(float) * e * d);
  return OkStatus();
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

Status WeightPlan::ExpertsOf(const std::string& module, int rows, int cols, Layout layout,
                             Linear& out) {
  const int e = model_.config.experts.num_experts;
  ASSIGN_OR_RETURN(const TensorInfo* tensor, Find(module + ".weight", e * rows, cols, e));
  out.weight = {.type = TypeInMemory(*tensor), .rows = e * rows, .cols = cols};
  if (parts_.rest)
    Reserve({.tensor = tensor, .matrix = &out.weight, .layout = layout}, out.weight.bytes());
  if (model_.Find(module + ".bias") == nullptr) return OkStatus();
  ASSIGN_OR_RETURN(const TensorInfo* bias, Find(module + ".bias", e, rows));
  if (parts_.vectors) Reserve({.tensor = bias, .vector = &out.bias}, sizeof(float) * e * rows);
  return OkStatus();
}

}  // namespace thermocline::model
