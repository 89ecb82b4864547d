// Rotary positions, windows, scales and caps in GGUF's keys.
#include "engine/model/gguf/attention.h"

#include <algorithm>
#include <cmath>

#include "engine/base/index.h"
#include "engine/base/ratio.h"

namespace thermocline::model {
namespace {

// The scales that MiniCPM's first files omit. Source: its 2B model.
struct Scales {
  double embedding = 1, residual = 1, logit_divisor = 1;
};
Scales AbsentScales(const ModelConfig& c) {
  if (c.architecture->name != "minicpm") return {};
  return {12, 1.4 / std::sqrt(std::max(1, c.num_hidden_layers)), c.hidden_size / 256.0};
}

// The default scale of queries. Gemma's largest models differ from 1 / sqrt(Dh), without a key for
// it.
// Source: llama.cpp's gemma2 and gemma3.
double AbsentAttentionScale(const ModelConfig& c) {
  if (c.architecture->altup || c.architecture->window_heads) return 1;
  const std::string_view name = c.architecture->name;
  const bool large = (name == "gemma2" && c.num_hidden_layers == 46) ||
                     (name == "gemma3" && c.num_hidden_layers == 62);
  return large ? 1 / std::sqrt(base::Ratio(c.hidden_size, c.num_attention_heads)) : 0;
}

// Reads the rotation of layers with a window, if it differs.
Status ReadWindowRope(const Keys& keys, const std::string& prefix, ModelConfig& c) {
  const Architecture& a = *c.architecture;
  if (c.sliding_window == 0 || !a.unscaled_window_rope) return OkStatus();
  const int dim = c.window_head_dim > 0 ? c.window_head_dim : c.rope.dim;
  ASSIGN_OR_RETURN(c.window_rope.dim, keys.Int(prefix + "rope.dimension_count_swa", dim));
  ASSIGN_OR_RETURN(c.window_rope.theta,
                   keys.Double(prefix + "rope.freq_base_swa",
                               a.window_theta > 0 ? a.window_theta : c.rope.theta));
  return OkStatus();
}

// Reads the attention temperature of Ministral and Llama 4.
Status ReadTemperature(const Keys& keys, const std::string& prefix, ModelConfig& c) {
  const bool llama4 = c.architecture->temperature_unrotated;
  ASSIGN_OR_RETURN(c.temperature_beta, keys.Double(prefix + "attention.temperature_scale",
                                                   llama4 ? kLlama4TemperatureBeta : 0.0));
  const std::string original = prefix + "rope.scaling.original_context_length";
  ASSIGN_OR_RETURN(const int positions, keys.Int(original, c.max_position_embeddings));
  const int absent = llama4 ? kLlama4TemperaturePeriod : positions;
  ASSIGN_OR_RETURN(c.temperature_period, keys.Int(prefix + "attention.temperature_length", absent));
  return OkStatus();
}

}  // namespace

// Source: granite's keys. Its key of the logits' scale is a divisor, Cohere's is a factor.
Status ReadGgufScales(const Keys& keys, const std::string& prefix, ModelConfig& c) {
  for (const char* key : {"embedding_scale", "residual_scale", "logit_scale"}) {
    if (!c.architecture->scales && keys.Has(prefix + key))
      return base::Unimplemented("key '", prefix, key, "' is not supported in the architecture '",
                                 c.architecture->name, "'");
  }
  const Scales absent = AbsentScales(c);
  ASSIGN_OR_RETURN(c.embedding_scale, keys.Double(prefix + "embedding_scale", absent.embedding));
  if (c.architecture->embedding_root) c.embedding_scale = std::sqrt(c.hidden_size);
  ASSIGN_OR_RETURN(c.residual_scale, keys.Double(prefix + "residual_scale", absent.residual));
  ASSIGN_OR_RETURN(c.attention_scale,
                   keys.Double(prefix + "attention.scale", AbsentAttentionScale(c)));
  ASSIGN_OR_RETURN(const double logits, keys.Double(prefix + "logit_scale", absent.logit_divisor));
  if (logits == 0) return base::InvalidArgument("key '", prefix, "logit_scale' is 0");
  c.logit_scale = c.architecture->logits_times_scale ? logits : 1 / logits;
  // The defaults of llama.cpp for files of Gemma 2 or 3n without these keys.
  const bool capped = c.architecture->name == "gemma2",
             logits_capped = capped || c.architecture->altup;
  ASSIGN_OR_RETURN(c.attention_cap,
                   keys.Double(prefix + "attn_logit_softcapping", capped ? 50.0 : 0.0));
  ASSIGN_OR_RETURN(c.logit_cap,
                   keys.Double(prefix + "final_logit_softcapping", logits_capped ? 30.0 : 0.0));
  return OkStatus();
}

// Reads a period, or a list with a flag per layer.
Status ReadGgufWindows(const Json& metadata, const std::string& prefix, ModelConfig& c) {
  const std::string key = prefix + "attention.sliding_window_pattern";
  const Json* pattern = metadata.Find(key);
  if (pattern == nullptr || c.sliding_window == 0) return OkStatus();
  if (pattern->is_int()) {
    ASSIGN_OR_RETURN(c.window_period, Keys(metadata).Int(key));
    return OkStatus();
  }
  if (!pattern->is_array())
    return base::InvalidArgument("key '", key, "' is a ", pattern->type_name());
  const Json::Array& layers = pattern->as_array();
  if (base::IntSize(layers) < c.num_hidden_layers)
    return base::InvalidArgument("key '", key, "' has ", layers.size(), " items for ",
                                 c.num_hidden_layers, " layers");
  std::vector<bool> windowed;
  for (int layer = 0; layer < c.num_hidden_layers; ++layer) {
    const Json& item = layers[layer];
    windowed.push_back(item.is_bool() ? item.as_bool() : item.is_int() && item.as_int() != 0);
  }
  return SetWindowedLayers(windowed, c).Annotate(key);
}

Status ReadGgufQueryHeads(const Keys& keys, const std::string& prefix, ModelConfig& c) {
  if (!c.architecture->window_queries) return OkStatus();
  if (c.num_hidden_layers < 1 || c.num_hidden_layers > kLayersMax)
    return OkStatus();  // ValidateConfig rejects it
  const std::string key = prefix + "attention.head_count";
  ASSIGN_OR_RETURN(const auto heads, keys.IntsByLayer(key, c.num_hidden_layers));
  return SetQueryHeads(heads, c).Annotate(key);
}

Status ReadGgufRope(const Keys& keys, const std::string& prefix, ModelConfig& c) {
  const std::string scaling = prefix + "rope.scaling.";
  ASSIGN_OR_RETURN(c.rope.dim, keys.Int(prefix + "rope.dimension_count", c.head_dim));
  ASSIGN_OR_RETURN(c.rope.theta, keys.Double(prefix + "rope.freq_base", 10000.0));
  ASSIGN_OR_RETURN(const double old_factor, keys.Double(prefix + "rope.scale_linear", 1.0));
  // A factor without a type means linear. Source: llama.cpp.
  ASSIGN_OR_RETURN(const double any_factor, keys.Double(scaling + "factor", old_factor));
  const bool scaled = any_factor != 0 && any_factor != 1;
  ASSIGN_OR_RETURN(const std::string type,
                   keys.String(scaling + "type", scaled ? "linear" : "none"));
  RETURN_IF_ERROR(ReadWindowRope(keys, prefix, c));
  RETURN_IF_ERROR(ReadTemperature(keys, prefix, c));
  if (type == "none" || type == "longrope") return OkStatus();  // ReadLongRope
  c.rope.factor = any_factor;
  if (type == "linear") {
    c.rope.scaling = RopeScaling::kLinear;
    return OkStatus();
  }
  if (type != "yarn")
    return base::Unimplemented("rope scaling '", type,
                               "' is not supported; supported are none, linear and yarn");
  c.rope.scaling = RopeScaling::kYarn;
  c.rope.truncate = c.architecture->yarn_truncate;
  ASSIGN_OR_RETURN(c.rope.original_max_position,
                   keys.Int(scaling + "original_context_length", c.max_position_embeddings));
  ASSIGN_OR_RETURN(c.rope.beta_fast, keys.Double(scaling + "yarn_beta_fast", 32.0));
  ASSIGN_OR_RETURN(c.rope.beta_slow, keys.Double(scaling + "yarn_beta_slow", 1.0));
  // In Ministral's files neither scores nor rotations are scaled.
  ASSIGN_OR_RETURN(const double log_multiplier, keys.Double(scaling + "yarn_log_multiplier", 0.0));
  const double absent = log_multiplier > 0 ? 1 : 0;
  ASSIGN_OR_RETURN(c.rope.attention_factor, keys.Double(scaling + "yarn_attn_factor", absent));
  return OkStatus();
}

}  // namespace thermocline::model
