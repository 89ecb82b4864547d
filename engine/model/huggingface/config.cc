#include "engine/model/huggingface/config.h"

#include <algorithm>
#include <cmath>

#include "engine/base/index.h"
#include "engine/model/huggingface/fields.h"
#include "engine/model/huggingface/recurrent.h"
#include "engine/model/latent_attention.h"
#include "kernels/attention.h"
#include "kernels/elementwise.h"

namespace thermocline::model {
namespace {

using hf::Double;
using hf::Flag;
using hf::Int;
using hf::String;

// Reads latent attention. The head_dim of config.json is the rotated part of a head.
Status ReadLatent(const Json& json, ModelConfig& c) {
  LatentConfig& l = c.latent;
  ASSIGN_OR_RETURN(l.kv_lora_rank, Int(json, {"kv_lora_rank"}));
  ASSIGN_OR_RETURN(l.q_lora_rank, Int(json, {"q_lora_rank"}, 0));
  ASSIGN_OR_RETURN(l.qk_nope_head_dim, Int(json, {"qk_nope_head_dim"}));
  ASSIGN_OR_RETURN(l.qk_rope_head_dim, Int(json, {"qk_rope_head_dim"}));
  ASSIGN_OR_RETURN(l.v_head_dim, Int(json, {"v_head_dim"}));
  if (l.kv_lora_rank == 0) return base::InvalidArgument("field 'kv_lora_rank' is 0");
  if (!Flag(json, "rope_interleave", true))
    return base::Unimplemented("rope_interleave = false is not supported");
  c.head_dim = l.qk_rope_head_dim;
  return OkStatus();
}

Status ReadShapes(const Json& json, ModelConfig& c) {
  ASSIGN_OR_RETURN(c.hidden_size, Int(json, {"hidden_size"}));
  // Nemotron's newer configs give only the list of layers.
  const std::optional<int> absent = c.architecture->one_part ? std::optional<int>(0) : std::nullopt;
  ASSIGN_OR_RETURN(c.num_hidden_layers, Int(json, {"num_hidden_layers"}, absent));
  ASSIGN_OR_RETURN(c.num_attention_heads, Int(json, {"num_attention_heads"}));
  ASSIGN_OR_RETURN(c.vocab_size, Int(json, {"vocab_size"}));
  const bool falcon = c.architecture->name == "falcon";
  // Falcon's files may omit both; ValidateConfig rejects 0.
  ASSIGN_OR_RETURN(
      c.intermediate_size,
      Int(json, {"intermediate_size", "ffn_dim", "ffn_hidden_size", "moe_ffn_hidden_size"},
          falcon ? 4 * std::min(c.hidden_size, 1 << 20) : 0));
  ASSIGN_OR_RETURN(c.max_position_embeddings,
                   Int(json, {"max_position_embeddings"}, falcon ? 2048 : 0));
  ASSIGN_OR_RETURN(c.num_key_value_heads,
                   Int(json, {"num_key_value_heads", "num_kv_heads"}, c.num_attention_heads));
  if (falcon && !Flag(json, "new_decoder_architecture", false))
    c.num_key_value_heads = Flag(json, "multi_query", true) ? 1 : c.num_attention_heads;
  ASSIGN_OR_RETURN(c.head_dim,
                   Int(json, {"head_dim"},
                       c.num_attention_heads > 0 ? c.hidden_size / c.num_attention_heads : 0));
  if (const int skip = c.architecture->hf_position_skip; skip > 0) {
    ASSIGN_OR_RETURN(const int padding, Int(json, {"pad_token_id"}, skip - 1));
    if (padding != skip - 1 || c.max_position_embeddings <= skip)
      return base::Unimplemented("pad_token_id ", padding, " with ", c.max_position_embeddings,
                                 " positions is not supported");
    c.max_position_embeddings -= skip;
  }
  if (c.architecture->latent) return ReadLatent(json, c);
  if (c.head_dim < 1 || c.head_dim > kernels::kHeadDimMax)
    return base::InvalidArgument("head_dim is ", c.head_dim, "; it must lie in [1, ",
                                 kernels::kHeadDimMax, "]");
  return OkStatus();
}

// Reads whether Llama 4's heads are normed. GGUF files say it by the number of experts.
Status ReadHeadNorm(const Json& json, ModelConfig& c) {
  c.plain_head_norm = Flag(json, "use_qk_norm", true);
  if (c.plain_head_norm == HasLlama4HeadNorm(c)) return OkStatus();
  return base::Unimplemented("use_qk_norm = ", c.plain_head_norm ? "true" : "false", " with ",
                             c.experts.num_experts, " experts is not supported");
}

// Reads the scales of Granite, Cohere and MiniCPM, and Gemma's attention scale.
Status ReadScales(const Json& json, ModelConfig& c) {
  ASSIGN_OR_RETURN(c.embedding_scale, Double(json, {"embedding_multiplier", "scale_emb"}, 1.0));
  ASSIGN_OR_RETURN(const double depth,
                   Double(json, {"scale_depth"}, std::sqrt(c.num_hidden_layers)));
  ASSIGN_OR_RETURN(c.residual_scale, Double(json, {"residual_multiplier"},
                                            depth / std::sqrt(std::max(1, c.num_hidden_layers))));
  ASSIGN_OR_RETURN(c.attention_scale, Double(json, {"attention_multiplier"}, 0.0));
  ASSIGN_OR_RETURN(const int base, Int(json, {"dim_model_base"}, c.hidden_size));
  if (base == 0) return base::InvalidArgument("field 'dim_model_base' is 0");
  ASSIGN_OR_RETURN(const double divisor,
                   Double(json, {"logits_scaling"}, static_cast<double>(c.hidden_size) / base));
  if (divisor == 0) return base::InvalidArgument("field 'logits_scaling' is 0");
  ASSIGN_OR_RETURN(c.logit_scale, Double(json, {"logit_scale", "output_multiplier"}, 1 / divisor));
  return OkStatus();
}

Status ReadCaps(const Json& json, ModelConfig& c) {
  if (c.architecture->embedding_root) c.embedding_scale = std::sqrt(c.hidden_size);
  if (!c.architecture->embedding_root && !c.architecture->embedding_norm) return OkStatus();
  ASSIGN_OR_RETURN(const double scalar, Double(json, {"query_pre_attn_scalar"}, 0.0));
  if (scalar > 0) c.attention_scale = 1 / std::sqrt(scalar);
  ASSIGN_OR_RETURN(c.attention_cap, Double(json, {"attn_logit_softcapping"}, 0.0));
  ASSIGN_OR_RETURN(c.logit_cap, Double(json, {"final_logit_softcapping"}, 0.0));
  return OkStatus();
}

// Checks gpt-oss's parameters: its config says silu and means the clamped form.
Status CheckClamp(const Json& json, ModelConfig& c) {
  ASSIGN_OR_RETURN(const double limit, Double(json, {"swiglu_limit"}, kernels::kSwigluLimit));
  ASSIGN_OR_RETURN(const double alpha, Double(json, {"swiglu_alpha"}, kernels::kSwigluSlope));
  const bool same = std::abs(limit - kernels::kSwigluLimit) < 1e-6 &&
                    std::abs(alpha - kernels::kSwigluSlope) < 1e-6;
  if (!same || c.hidden_act != Activation::kSilu)
    return base::Unimplemented("hidden_act ", ActivationName(c.hidden_act), " with swiglu_limit ",
                               limit, " and swiglu_alpha ", alpha, " is not supported");
  c.hidden_act = Activation::kClampedSwiglu;
  return OkStatus();
}

Status ReadActivation(const Json& json, ModelConfig& c) {
  const Activation family = c.architecture->activation;
  const std::string name =
      String(json, {"hidden_activation", "hidden_act", "activation_function", "activation"},
             std::string(ActivationName(family)));
  ASSIGN_OR_RETURN(c.hidden_act, ParseActivation(name));
  if (family == Activation::kClampedSwiglu) RETURN_IF_ERROR(CheckClamp(json, c));
  // In Bamboo's config relu applies to both factors, and in Gemma's gelu means the tanh form.
  if (family == Activation::kDRelu && c.hidden_act == Activation::kRelu)
    c.hidden_act = Activation::kDRelu;
  if (c.architecture->embedding_root && c.hidden_act == Activation::kGelu)
    c.hidden_act = Activation::kGeluTanh;
  if (c.hidden_act == Activation::kXielu)  // TakeXielu reads the values
    c.xielu.resize(std::clamp(c.num_hidden_layers, 0, kLayersMax));
  ASSIGN_OR_RETURN(c.fatrelu_threshold,
                   Double(json, {"fatrelu_threshold", "hidden_act_param"}, 0.0));
  return OkStatus();
}

// Rejects the variants that a family's code supports and ours does not.
Status RefuseVariants(const Json& json, const ModelConfig& c) {
  const auto refuse = [](const char* field, const char* value) {
    return base::Unimplemented(field, " = ", value, " is not supported");
  };
  if (Flag(json, "alibi", false)) return refuse("alibi", "true");
  if (c.architecture->name == "falcon" && !Flag(json, "new_decoder_architecture", false) &&
      !Flag(json, "parallel_attn", true))
    return refuse("parallel_attn", "false");
  const bool persimmon = c.architecture->name == "persimmon";
  if (Flag(json, "qk_layernorm", persimmon) != persimmon)
    return refuse("qk_layernorm", persimmon ? "false" : "true");
  if (Flag(json, "use_parallel_residual", false)) return refuse("use_parallel_residual", "true");
  if (Flag(json, "use_bidirectional_attention", false) && !c.architecture->encoder)
    return refuse("use_bidirectional_attention", "true");
  // Gemma 4 says which tokens it means: those of images, which do not occur here.
  if (String(json, {"use_bidirectional_attention"}, "vision") != "vision")
    return refuse("use_bidirectional_attention", "all");
  if (!Flag(json, "do_layer_norm_before", true)) return refuse("do_layer_norm_before", "false");
  if (c.architecture->hf_name == "afmoe" && !Flag(json, "mup_enabled", false))
    return refuse("mup_enabled", "false");
  if (Flag(json, "moe_apply_router_weight_on_input", false))
    return refuse("moe_apply_router_weight_on_input", "true");
  const double post_eps = c.architecture->post_norm_eps;
  ASSIGN_OR_RETURN(const double given_eps, Double(json, {"post_norm_eps"}, post_eps));
  if (given_eps != post_eps)
    return base::Unimplemented("post_norm_eps ", given_eps, " other than ", post_eps,
                               " is not supported");
  if (c.architecture->encoder) {
    if (Flag(json, "is_decoder", false)) return refuse("is_decoder", "true");
    const std::string positions = String(json, {"position_embedding_type"}, "absolute");
    if (positions != (c.by_distance() ? "alibi" : "absolute") && !c.rotary())
      return base::Unimplemented("position_embedding_type = ", positions, " is not supported");
  }
  ASSIGN_OR_RETURN(const int projected, Int(json, {"word_embed_proj_dim"}, c.hidden_size));
  if (projected != c.hidden_size)
    return base::Unimplemented("word_embed_proj_dim ", projected, " other than hidden_size ",
                               c.hidden_size, " is not supported");
  return OkStatus();
}

}  // namespace

// Rejects fields of the wrong type, which String and Flag would ignore.
Status CheckTypes(const Json& config) {
  for (const char* key : {"model_type", "hidden_act", "hidden_activation", "activation_function",
                          "activation", "rope_type", "type", "scoring_func", "topk_method"}) {
    const Json* value = config.Find(key);
    if (value != nullptr && !value->is_null() && !value->is_string())
      return base::InvalidArgument("field '", key, "' is ", value->Dump(), ", not a string");
  }
  for (const char* key :
       {"new_decoder_architecture", "multi_query", "use_sliding_window", "alibi", "parallel_attn",
        "qk_layernorm", "do_layer_norm_before", "tie_word_embeddings", "norm_topk_prob",
        "rope_interleave", "use_parallel_residual", "use_bidirectional_attention"}) {
    const Json* value = config.Find(key);
    const bool named = std::string_view(key) == "use_bidirectional_attention";
    if (value != nullptr && !value->is_null() && !value->is_bool() &&
        !(named && value->is_string()))
      return base::InvalidArgument("field '", key, "' is ", value->Dump(), ", not true or false");
  }
  return OkStatus();
}

Result<ModelConfig> ConfigFromHuggingFace(const Json& stored) {
  ModelConfig c;
  RETURN_IF_ERROR(CheckTypes(stored));
  const std::string type = String(stored, {"model_type"}, "");
  ASSIGN_OR_RETURN(c.architecture, FindHuggingFaceArchitecture(type));
  const Json json = WithFamilyDefaults(stored, type);
  if (type == "gemma3_text" && Flag(json, "use_bidirectional_attention", false)) {
    ASSIGN_OR_RETURN(c.architecture, FindArchitecture("gemma-embedding"));
  } else if (type == "bert" && String(json, {"position_embedding_type"}, "") == "alibi") {
    ASSIGN_OR_RETURN(c.architecture, FindArchitecture("jina-bert-v2"));
  }
  if (hf::FindFirst(json, {"rms_norm_eps"}) != nullptr)
    c.architecture = WithNorm(*c.architecture, Norm::kRms);
  RETURN_IF_ERROR(ReadShapes(json, c));
  RETURN_IF_ERROR(RefuseVariants(json, c));
  RETURN_IF_ERROR(ReadHuggingFaceRecurrent(json, c));
  RETURN_IF_ERROR(ReadHuggingFaceExperts(json, c));
  if (c.architecture->chunked) RETURN_IF_ERROR(ReadHeadNorm(json, c));
  if (c.architecture->scales) RETURN_IF_ERROR(ReadScales(json, c));
  RETURN_IF_ERROR(ReadCaps(json, c));
  RETURN_IF_ERROR(ReadHuggingFaceAltUp(json, c));
  RETURN_IF_ERROR(ReadHuggingFaceGemma4(json, c));
  RETURN_IF_ERROR(ReadHuggingFaceWindows(json, c));
  if (c.rotary()) RETURN_IF_ERROR(ReadHuggingFaceRope(json, c));
  ASSIGN_OR_RETURN(c.norm_eps, Double(json,
                                      {"rms_norm_eps", "layer_norm_eps", "norm_eps", "norm_epsilon",
                                       "layer_norm_epsilon"},
                                      c.architecture->norm == Norm::kRms ? 1e-6 : 1e-5));
  RETURN_IF_ERROR(ReadActivation(json, c));
  c.tie_word_embeddings = Flag(json, "tie_word_embeddings", false) && !c.architecture->encoder;
  if (c.latent.any()) SetAbsorbed(c);
  if (c.architecture->indexed) {
    ASSIGN_OR_RETURN(const int keys_max, Int(json, {"index_topk"}, 0));
    CutToIndexed(keys_max, c);
  }
  RETURN_IF_ERROR(ValidateConfig(c));
  return c;
}

}  // namespace thermocline::model
