#include "engine/model/hf_config.h"

#include <algorithm>
#include <cmath>

#include "engine/base/index.h"
#include "engine/model/hf_fields.h"
#include "engine/model/latent_attention.h"
#include "kernels/attention.h"
#include "kernels/elementwise.h"

namespace thermocline::model {
namespace {

using hf::Double;
using hf::FindFirst;
using hf::Flag;
using hf::Int;
using hf::String;

// String and Flag below look only at fields of the right type: others are refused here.
Status CheckTypes(const Json& config) {
  for (const char* key : {"model_type", "hidden_act", "activation_function", "activation",
                          "rope_type", "type", "scoring_func", "topk_method"}) {
    const Json* value = config.Find(key);
    if (value != nullptr && !value->is_null() && !value->is_string())
      return base::InvalidArgument("field '", key, "' is ", value->Dump(), ", not a string");
  }
  for (const char* key : {"new_decoder_architecture", "multi_query", "use_sliding_window", "alibi",
                          "parallel_attn", "qk_layernorm", "do_layer_norm_before",
                          "tie_word_embeddings", "norm_topk_prob", "rope_interleave"}) {
    const Json* value = config.Find(key);
    if (value != nullptr && !value->is_null() && !value->is_bool())
      return base::InvalidArgument("field '", key, "' is ", value->Dump(), ", not true or false");
  }
  return OkStatus();
}

// What config.json calls head_dim is the rotated part of a head.
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
  ASSIGN_OR_RETURN(c.num_hidden_layers, Int(json, {"num_hidden_layers"}));
  ASSIGN_OR_RETURN(c.num_attention_heads, Int(json, {"num_attention_heads"}));
  ASSIGN_OR_RETURN(c.vocab_size, Int(json, {"vocab_size"}));
  const bool falcon = c.architecture->name == "falcon";
  // Falcon's files may leave both out; 0 is refused by ValidateConfig.
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
  if (c.architecture->latent) return ReadLatent(json, c);
  if (c.head_dim < 1 || c.head_dim > kernels::kHeadDimMax)
    return base::InvalidArgument("head_dim is ", c.head_dim, "; it must lie in [1, ",
                                 kernels::kHeadDimMax, "]");
  return OkStatus();
}

// Sliding windows: all layers (mistral), or from max_window_layers on, if switched on (qwen).
Status ReadWindow(const Json& json, ModelConfig& c) {
  const bool on = Flag(json, "use_sliding_window", json.Find("use_sliding_window") == nullptr);
  if (!on) return OkStatus();
  ASSIGN_OR_RETURN(c.sliding_window, Int(json, {"sliding_window"}, 0));
  if (json.Find("use_sliding_window") == nullptr) return OkStatus();
  ASSIGN_OR_RETURN(c.max_window_layers, Int(json, {"max_window_layers"}, 0));
  return OkStatus();
}

// SmallThinker's, by layer: where the window is, and what is rotated. The family's is the only one.
Status ReadLayouts(const Json& json, ModelConfig& c) {
  const auto layout = [&](const char* key) {
    const Json* value = json.Find(key);
    return value != nullptr && value->is_array() ? value->as_array() : Json::Array{};
  };
  const auto has = [](const Json& item) { return item.is_int() && item.as_int() != 0; };
  const Json::Array windows = layout("sliding_window_layout"), rotated = layout("rope_layout");
  if (std::any_of(windows.begin(), windows.end(), has)) {
    ASSIGN_OR_RETURN(c.sliding_window, Int(json, {"sliding_window_size"}));
  }
  for (int layer = 0; layer < std::min(c.num_hidden_layers, base::IntSize(windows)); ++layer) {
    if (has(windows[layer]) != (c.WindowOf(layer) > 0))
      return base::Unimplemented("sliding_window_layout other than in every layer but each fourth");
  }
  for (int layer = 0; layer < std::min(c.num_hidden_layers, base::IntSize(rotated)); ++layer) {
    if (has(rotated[layer]) != c.Rotates(layer))
      return base::Unimplemented("rope_layout other than sliding_window_layout is not supported");
  }
  return OkStatus();
}

// DeepSeek's yarn scales scores, not rotations.
Status ReadMScale(const Json& scaling, ModelConfig& c) {
  ASSIGN_OR_RETURN(const double all, Double(scaling, {"mscale_all_dim"}, 0.0));
  ASSIGN_OR_RETURN(const double rotated, Double(scaling, {"mscale"}, all));
  if (all == 0) return OkStatus();
  if (!c.architecture->latent || rotated != all)
    return base::Unimplemented("mscale ", rotated, " with mscale_all_dim ", all,
                               " is not supported in the architecture '", c.architecture->name,
                               "'");
  constexpr double kPerLog = 0.1;
  c.latent.yarn_log_multiplier = kPerLog * all;
  c.rope.attention_factor = 1;
  return OkStatus();
}

Status ReadScaling(const Json& scaling, ModelConfig& c) {
  RETURN_IF_ERROR(CheckTypes(scaling));
  const std::string type = String(scaling, {"rope_type", "type"}, "default");
  RopeConfig& rope = c.rope;
  if (type == "default") return OkStatus();
  ASSIGN_OR_RETURN(rope.factor, Double(scaling, {"factor"}, 1.0));
  if (!(rope.factor >= 1 && rope.factor <= 1e6))
    return base::InvalidArgument("rope scaling factor is ", rope.factor,
                                 "; it must lie in [1, 1000000]");
  ASSIGN_OR_RETURN(const int original,
                   Int(scaling, {"original_max_position_embeddings"}, c.max_position_embeddings));
  if (type == "linear") {
    rope.scaling = RopeScaling::kLinear;
  } else if (type == "dynamic") {
    rope.theta = NtkTheta(rope.theta, rope.dim, rope.factor);
    c.max_position_embeddings = static_cast<int>(std::min(original * rope.factor, 2e9));
  } else if (type == "yarn") {
    rope.scaling = RopeScaling::kYarn;
    rope.original_max_position = original;
    ASSIGN_OR_RETURN(rope.beta_fast, Double(scaling, {"beta_fast"}, 32.0));
    ASSIGN_OR_RETURN(rope.beta_slow, Double(scaling, {"beta_slow"}, 1.0));
    ASSIGN_OR_RETURN(rope.attention_factor, Double(scaling, {"attention_factor"}, 0.0));
    RETURN_IF_ERROR(ReadMScale(scaling, c));
    rope.truncate = Flag(scaling, "truncate", true);
    if (rope.truncate != c.architecture->yarn_truncate)
      return base::Unimplemented("rope scaling's truncate = ", rope.truncate ? "true" : "false",
                                 " is not supported in the architecture '", c.architecture->name,
                                 "'");
  } else if (type == "llama3") {
    Llama3Bands bands{.factor = rope.factor, .original_max_position = original};
    ASSIGN_OR_RETURN(bands.low_freq_factor, Double(scaling, {"low_freq_factor"}, 1.0));
    ASSIGN_OR_RETURN(bands.high_freq_factor, Double(scaling, {"high_freq_factor"}, 4.0));
    if (!(bands.high_freq_factor > bands.low_freq_factor) || original < 1)
      return base::InvalidArgument("rope scaling ", scaling.Dump(),
                                   ": high_freq_factor must exceed low_freq_factor");
    rope.divisors = Llama3Divisors(rope, bands);
    rope.factor = 1;
  } else {
    return base::Unimplemented("rope scaling '", type,
                               "' is not supported; supported are default, linear, dynamic, yarn "
                               "and llama3");
  }
  return OkStatus();
}

// Old files have rope_theta and rope_scaling, new ones rope_parameters for both.
Status ReadRope(const Json& json, ModelConfig& c) {
  static const Json kNone{Json::Object()};
  const Json* scaling = FindFirst(json, {"rope_parameters", "rope_scaling"});
  if (scaling == nullptr) scaling = &kNone;
  if (!scaling->is_object())
    return base::InvalidArgument("rope_scaling is ", scaling->Dump(), ", not an object");
  const double theta = c.architecture->name == "persimmon" ? 25000.0 : 10000.0;
  ASSIGN_OR_RETURN(const double top_theta, Double(json, {"rope_theta"}, theta));
  ASSIGN_OR_RETURN(c.rope.theta, Double(*scaling, {"rope_theta"}, top_theta));
  const std::string_view name = c.architecture->name;
  const bool half = name == "phi2" || name == "nemotron" || name == "persimmon";
  const double absent = half ? 0.5 : 1.0;
  ASSIGN_OR_RETURN(const double top_share, Double(json, {"partial_rotary_factor"}, absent));
  ASSIGN_OR_RETURN(const double share, Double(*scaling, {"partial_rotary_factor"}, top_share));
  if (!(share > 0 && share <= 1))
    return base::InvalidArgument("partial_rotary_factor is ", share, "; it must lie in (0, 1]");
  c.rope.dim = static_cast<int>(c.head_dim * share);
  if (c.rope.dim < 2 || c.rope.dim % 2 != 0)
    return base::InvalidArgument("partial_rotary_factor ", share, " of heads of ", c.head_dim,
                                 " rotates ", c.rope.dim, " dimensions; they must be even");
  return ReadScaling(*scaling, c);
}

// Granite's.
Status ReadScales(const Json& json, ModelConfig& c) {
  ASSIGN_OR_RETURN(c.embedding_scale, Double(json, {"embedding_multiplier"}, 1.0));
  ASSIGN_OR_RETURN(c.residual_scale, Double(json, {"residual_multiplier"}, 1.0));
  ASSIGN_OR_RETURN(c.attention_scale, Double(json, {"attention_multiplier"}, 1.0));
  ASSIGN_OR_RETURN(const double divisor, Double(json, {"logits_scaling"}, 1.0));
  if (divisor == 0) return base::InvalidArgument("field 'logits_scaling' is 0");
  c.logit_scale = 1 / divisor;
  return OkStatus();
}

// gpt-oss's says silu and means its clamped form.
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

// Layers with a window and without, one by one. The family's order is the only one.
Status CheckLayerTypes(const Json& json, const ModelConfig& c) {
  const Json* types = json.Find("layer_types");
  if (!c.architecture->sinks || types == nullptr || !types->is_array()) return OkStatus();
  const Json::Array& list = types->as_array();
  for (int layer = 0; layer < std::min(c.num_hidden_layers, base::IntSize(list)); ++layer) {
    const bool windowed = list[layer].is_string() && list[layer].as_string() == "sliding_attention";
    if (windowed != (c.WindowOf(layer) > 0))
      return base::Unimplemented("layer_types ", types->Dump(),
                                 " other than windows in every second layer are not supported");
  }
  return OkStatus();
}

// What a family's code can do and ours cannot.
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
  if (!Flag(json, "do_layer_norm_before", true)) return refuse("do_layer_norm_before", "false");
  ASSIGN_OR_RETURN(const int projected, Int(json, {"word_embed_proj_dim"}, c.hidden_size));
  if (projected != c.hidden_size)
    return base::Unimplemented("word_embed_proj_dim ", projected, " other than hidden_size ",
                               c.hidden_size, " is not supported");
  return OkStatus();
}

}  // namespace

Result<ModelConfig> ConfigFromHuggingFace(const Json& json) {
  ModelConfig c;
  RETURN_IF_ERROR(CheckTypes(json));
  ASSIGN_OR_RETURN(c.architecture, FindHuggingFaceArchitecture(String(json, {"model_type"}, "")));
  RETURN_IF_ERROR(ReadShapes(json, c));
  RETURN_IF_ERROR(RefuseVariants(json, c));
  RETURN_IF_ERROR(ReadHuggingFaceExperts(json, c));
  if (c.architecture->scales) RETURN_IF_ERROR(ReadScales(json, c));
  RETURN_IF_ERROR(ReadWindow(json, c));
  if (c.architecture->window_between) RETURN_IF_ERROR(ReadLayouts(json, c));
  RETURN_IF_ERROR(CheckLayerTypes(json, c));
  if (c.rotary()) RETURN_IF_ERROR(ReadRope(json, c));
  ASSIGN_OR_RETURN(
      c.norm_eps, Double(json, {"rms_norm_eps", "layer_norm_eps", "norm_eps", "layer_norm_epsilon"},
                         c.architecture->norm == Norm::kRms ? 1e-6 : 1e-5));
  const std::string activation = String(json, {"hidden_act", "activation_function", "activation"},
                                        std::string(ActivationName(c.architecture->activation)));
  ASSIGN_OR_RETURN(c.hidden_act, ParseActivation(activation));
  if (c.architecture->activation == Activation::kClampedSwiglu)
    RETURN_IF_ERROR(CheckClamp(json, c));
  // Bamboo's config says relu and means it of both factors.
  if (c.architecture->activation == Activation::kDRelu && c.hidden_act == Activation::kRelu)
    c.hidden_act = Activation::kDRelu;
  ASSIGN_OR_RETURN(c.fatrelu_threshold, Double(json, {"fatrelu_threshold"}, 0.0));
  const bool tied_by_default = c.architecture->name == "falcon" || c.architecture->name == "opt";
  c.tie_word_embeddings = Flag(json, "tie_word_embeddings", tied_by_default);
  if (c.latent.any()) SetAbsorbed(c);
  RETURN_IF_ERROR(ValidateConfig(c));
  return c;
}

}  // namespace thermocline::model
