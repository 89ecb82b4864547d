// Mixtures of experts in config.json.
#include <algorithm>

#include "engine/model/huggingface/config.h"
#include "engine/model/huggingface/fields.h"

namespace thermocline::model {
namespace {

using hf::Double;
using hf::FindFirst;
using hf::Flag;
using hf::Int;
using hf::String;

// Reads the size of the shared expert: given in neurons, or as a number of experts.
Status ReadShared(const Json& json, ExpertConfig& e) {
  ASSIGN_OR_RETURN(
      const int experts,
      Int(json, {"moe_num_shared_experts", "n_shared_experts", "num_shared_experts"}, 0));
  const int absent = static_cast<int>(
      std::min<std::int64_t>(std::int64_t{experts} * e.intermediate_size, INT32_MAX));
  ASSIGN_OR_RETURN(e.shared_intermediate_size,
                   Int(json,
                       {"shared_expert_intermediate_size", "shared_intermediate_size",
                        "moe_shared_expert_intermediate_size"},
                       absent));
  return OkStatus();
}

// Reads the list of layer kinds: dense ones, then sparse ones.
Status ReadLayerTypes(const Json& json, ModelConfig& c) {
  ASSIGN_OR_RETURN(const Json::Array list, hf::List(json, {"mlp_layer_types"}));
  if (list.empty()) return OkStatus();
  const auto is = [](const Json& item, const char* name) {
    return item.is_string() && item.as_string() == name;
  };
  const auto sparse =
      std::find_if(list.begin(), list.end(), [&](const Json& item) { return !is(item, "dense"); });
  if (!std::all_of(sparse, list.end(), [&](const Json& item) { return is(item, "sparse"); }))
    return base::Unimplemented("mlp_layer_types ", Json(list).Dump(),
                               " other than dense ones before sparse ones is not supported");
  c.experts.first_layer = static_cast<int>(sparse - list.begin());
  return OkStatus();
}

// Reads the layers without experts: the first ones, or those in between.
Status ReadLayers(const Json& json, ModelConfig& c) {
  ExpertConfig& e = c.experts;
  ASSIGN_OR_RETURN(e.first_layer,
                   Int(json, {"first_k_dense_replace", "moe_layer_start_index", "num_dense_layers"},
                       c.architecture->hf_name == "glm4_moe_lite" ? 1 : 0));
  ASSIGN_OR_RETURN(e.step, Int(json,
                               {"decoder_sparse_step", "moe_layer_interval", "moe_layer_freq",
                                "interleave_moe_layer_step"},
                               1));
  ASSIGN_OR_RETURN(const int last, Int(json, {"moe_layer_end_index"}, c.num_hidden_layers - 1));
  if (last < c.num_hidden_layers - 1)
    return base::Unimplemented("moe_layer_end_index ", last, " before the last of ",
                               c.num_hidden_layers, " layers is not supported");
  RETURN_IF_ERROR(ReadLayerTypes(json, c));
  ASSIGN_OR_RETURN(const Json::Array listed, hf::List(json, {"moe_layers"}));
  for (const Json& item : listed) {
    const bool known = item.is_int() && item.as_int() >= 0 && item.as_int() < kLayersMax;
    if (!known || !e.InLayer(static_cast<int>(item.as_int())))
      return base::Unimplemented("moe_layers ", Json(listed).Dump(), " other than each ", e.step,
                                 ". is not supported");
  }
  ASSIGN_OR_RETURN(const Json::Array dense, hf::List(json, {"mlp_only_layers"}));
  int layer = 0;
  for (const Json& item : dense) {
    if (!item.is_int() || item.as_int() != layer++)
      return base::Unimplemented("mlp_only_layers ", Json(dense).Dump(),
                                 " other than the first ones is not supported");
  }
  e.first_layer = std::max(e.first_layer, layer);
  return OkStatus();
}

Status ReadRouter(const Json& json, RouterConfig& router) {
  router.normalise = Flag(json, "norm_topk_prob", router.normalise);
  if (Flag(json, "moe_primary_router_apply_softmax", false)) router.gating = Gating::kSoftmax;
  ASSIGN_OR_RETURN(
      router.scale,
      Double(json, {"routed_scaling_factor", "route_scale", "moe_routed_scaling_factor"},
             router.scale));
  ASSIGN_OR_RETURN(router.norm_min, Double(json, {"moe_norm_min"}, router.norm_min));
  const std::string scoring = String(json, {"scoring_func"}, "");
  // Cohere's function is of the chosen experts' logits.
  if (String(json, {"expert_selection_fn"}, "") == "softmax")
    router.gating = Gating::kSoftmaxOfChosen;
  if (scoring == "softmax") router.gating = Gating::kSoftmax;
  if (scoring == "sigmoid") router.gating = Gating::kSigmoid;
  if (!scoring.empty() && scoring != "softmax" && scoring != "sigmoid")
    return base::Unimplemented("scoring_func = ", scoring,
                               " is not supported; supported are softmax and sigmoid");
  if (String(json, {"topk_method"}, "") == "greedy") return OkStatus();
  ASSIGN_OR_RETURN(router.groups, Int(json, {"n_group"}, 1));
  ASSIGN_OR_RETURN(router.groups_used, Int(json, {"topk_group"}, router.groups));
  return OkStatus();
}

}  // namespace

Status ReadHuggingFaceExperts(const Json& json, ModelConfig& c) {
  ExpertConfig& e = c.experts;
  ASSIGN_OR_RETURN(e.num_experts, Int(json,
                                      {"num_local_experts", "num_experts", "n_routed_experts",
                                       "moe_num_experts", "moe_num_primary_experts"},
                                      0));
  // Nemotron's configs give a number of experts even if no layer has them.
  const bool listed = !e.layers.empty();
  if (listed && std::find(e.layers.begin(), e.layers.end(), true) == e.layers.end())
    e.num_experts = 0;
  if (!e.any()) {
    e.layers.clear();
    // Granite's shared network is then the only network.
    ASSIGN_OR_RETURN(c.intermediate_size,
                     Int(json, {"shared_intermediate_size"}, c.intermediate_size));
    return OkStatus();
  }
  e.router = c.architecture->router;
  e.shared_gated = c.architecture->shared_gated;
  e.shared_averaged = c.architecture->shared_averaged;
  ASSIGN_OR_RETURN(e.num_experts_per_tok,
                   Int(json, {"num_experts_per_tok", "experts_per_token", "moe_k",
                              "moe_num_active_primary_experts", "top_k_experts"}));
  ASSIGN_OR_RETURN(e.intermediate_size, Int(json, {"moe_intermediate_size", "moe_ffn_hidden_size"},
                                            c.intermediate_size));
  ASSIGN_OR_RETURN(c.prediction_layers, Int(json, {"num_nextn_predict_layers"}, 0));
  ASSIGN_OR_RETURN(
      c.intermediate_size,
      Int(json, {"prefix_dense_intermediate_size", "intermediate_size_mlp"}, c.intermediate_size));
  RETURN_IF_ERROR(ReadShared(json, e));
  RETURN_IF_ERROR(ReadLayers(json, c));
  RETURN_IF_ERROR(ReadRouter(json, e.router));
  // The code of these families always has the bias.
  for (const char* family :
       {"deepseek_v3", "deepseek_v32", "kimi_k2", "glm4_moe", "glm4_moe_lite", "glm_moe_dsa",
        "ernie4_5_moe", "nemotron_h", "lfm2_moe", "minimax_m2", "exaone_moe", "afmoe", "laguna"})
    e.router.choice_bias |= c.architecture->hf_name == family;
  const std::string combined = String(json, {"shared_expert_combination_strategy"}, "average");
  if (combined != "average")
    return base::Unimplemented("shared_expert_combination_strategy = ", combined,
                               " is not supported");
  if (const Json* clip = FindFirst(json, {"clip_qkv"}); clip != nullptr)
    return base::Unimplemented("clip_qkv = ", clip->Dump(), " is not supported");
  SetDenseSize(c);
  return OkStatus();
}

}  // namespace thermocline::model
