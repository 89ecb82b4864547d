#include "engine/model/model_config.h"

#include <cmath>

namespace thermocline::model {
namespace {

Status CheckRange(const char* field, std::int64_t value, std::int64_t min, std::int64_t max) {
  if (value >= min && value <= max) return OkStatus();
  return base::InvalidArgument(field, " is ", value, "; it must lie in [", min, ", ", max, "]");
}

}  // namespace

Result<Activation> ParseActivation(const std::string& name) {
  if (name == "silu" || name == "swish") return Activation::kSilu;
  if (name == "relu") return Activation::kRelu;
  if (name == "fatrelu") return Activation::kFatRelu;
  return base::Unimplemented("activation '", name,
                             "' is not supported; supported are silu, relu, fatrelu");
}

const char* ActivationName(Activation activation) {
  switch (activation) {
    case Activation::kSilu:
      return "silu";
    case Activation::kRelu:
      return "relu";
    case Activation::kFatRelu:
      return "fatrelu";
  }
  return "";
}

std::int64_t ModelConfig::num_parameters() const {
  const std::int64_t d = hidden_size, q = std::int64_t{num_attention_heads} * head_dim;
  const std::int64_t kv = std::int64_t{num_key_value_heads} * head_dim;
  const std::int64_t layer = 2 * d * q + 2 * d * kv + 3 * d * intermediate_size + 2 * d;
  return num_hidden_layers * layer + d * vocab_size * (tie_word_embeddings ? 1 : 2) + d;
}

Status ValidateConfig(const ModelConfig& c) {
  if (c.architecture != "llama") {
    return base::Unimplemented("architecture '", c.architecture,
                               "' is not supported; supported is llama");
  }
  RETURN_IF_ERROR(CheckRange("hidden_size", c.hidden_size, 1, 1 << 17));
  RETURN_IF_ERROR(CheckRange("intermediate_size", c.intermediate_size, 1, 1 << 20));
  RETURN_IF_ERROR(CheckRange("num_hidden_layers", c.num_hidden_layers, 1, 1024));
  RETURN_IF_ERROR(CheckRange("num_attention_heads", c.num_attention_heads, 1, 1024));
  RETURN_IF_ERROR(
      CheckRange("num_key_value_heads", c.num_key_value_heads, 1, c.num_attention_heads));
  RETURN_IF_ERROR(CheckRange("head_dim", c.head_dim, 1, 512));
  RETURN_IF_ERROR(CheckRange("vocab_size", c.vocab_size, 1, 1 << 22));
  RETURN_IF_ERROR(CheckRange("max_position_embeddings", c.max_position_embeddings, 1, 1 << 24));
  RETURN_IF_ERROR(CheckRange("rope_dim", c.rope_dim, 2, c.head_dim));
  if (c.num_attention_heads % c.num_key_value_heads != 0) {
    return base::InvalidArgument("num_attention_heads ", c.num_attention_heads,
                                 " is no multiple of num_key_value_heads ", c.num_key_value_heads);
  }
  if (c.rope_dim % 2 != 0)
    return base::InvalidArgument("rope_dim is ", c.rope_dim, "; it must be even");
  if (!(c.rms_norm_eps > 0 && c.rms_norm_eps < 1)) {
    return base::InvalidArgument("rms_norm_eps is ", c.rms_norm_eps, "; it must lie in (0, 1)");
  }
  if (!(c.rope_theta >= 1 && std::isfinite(c.rope_theta))) {
    return base::InvalidArgument("rope_theta is ", c.rope_theta,
                                 "; it must be finite and at least 1");
  }
  return OkStatus();
}

}  // namespace thermocline::model
