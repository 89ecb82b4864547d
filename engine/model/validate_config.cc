// Checks of a model's shape, before anything is sized by it.
#include <cmath>

#include "engine/base/index.h"
#include "engine/base/strings.h"
#include "engine/model/model_config.h"
#include "kernels/recurrence.h"
#include "kernels/types.h"

namespace thermocline::model {
namespace {

constexpr int kExpertsMax = 4096, kLatentHeadDimMax = 2048;

Status CheckRange(const char* field, std::int64_t value, std::int64_t min, std::int64_t max) {
  if (value >= min && value <= max) return OkStatus();
  return base::InvalidArgument(field, " is ", value, "; it must lie in [", min, ", ", max, "]");
}

Status CheckFinite(const char* field, double value, double min, double max) {
  if (value >= min && value <= max) return OkStatus();  // false for NaN
  return base::InvalidArgument(field, " is ", value, "; it must lie in [", min, ", ", max, "]");
}

Status ValidateLongRope(const RopeConfig& rope) {
  if (base::IntSize(rope.long_divisors) != rope.dim / 2)
    return base::InvalidArgument("long rope factors are ", rope.long_divisors.size(), ", expected ",
                                 rope.dim / 2);
  for (const float divisor : rope.long_divisors)
    RETURN_IF_ERROR(CheckFinite("a long rope factor", divisor, 1e-6, 1e6));
  return CheckRange("original_max_position_embeddings", rope.original_max_position, 2, 1 << 24);
}

Status ValidateRope(const RopeConfig& rope, int head_dim) {
  RETURN_IF_ERROR(CheckRange("rope dimensions", rope.dim, 2, head_dim));
  if (rope.dim % 2 != 0)
    return base::InvalidArgument("rope dimensions are ", rope.dim, "; they must be even");
  RETURN_IF_ERROR(CheckFinite("rope_theta", rope.theta, 1.001, 1e30));
  RETURN_IF_ERROR(CheckFinite("rope scaling factor", rope.factor, 1e-3, 1e6));
  RETURN_IF_ERROR(CheckFinite("attention_factor", rope.attention_factor, 0, 1e3));
  if (rope.scaling == RopeScaling::kYarn) {
    RETURN_IF_ERROR(
        CheckRange("original_max_position_embeddings", rope.original_max_position, 1, 1 << 24));
    RETURN_IF_ERROR(CheckFinite("beta_fast", rope.beta_fast, 1e-3, 1e6));
    RETURN_IF_ERROR(CheckFinite("beta_slow", rope.beta_slow, 1e-3, 1e6));
  }
  if (!rope.divisors.empty() && base::IntSize(rope.divisors) != rope.dim / 2) {
    return base::InvalidArgument("tensor 'rope_freqs.weight' has ", rope.divisors.size(),
                                 " elements, expected ", rope.dim / 2);
  }
  for (const float divisor : rope.divisors)
    RETURN_IF_ERROR(CheckFinite("an element of tensor 'rope_freqs.weight'", divisor, 1e-6, 1e31));
  return rope.scaling == RopeScaling::kLong ? ValidateLongRope(rope) : OkStatus();
}

// Panels of weights hold 16 rows, and an expert must begin with a panel.
Status CheckPanels(const char* field, int value) {
  if (value % kernels::kPanelRows == 0) return OkStatus();
  return base::Unimplemented(field, " ", value, " is not supported in a mixture of experts; it ",
                             "must be a multiple of ", kernels::kPanelRows);
}

Status ValidateExperts(const ModelConfig& c) {
  const ExpertConfig& e = c.experts;
  RETURN_IF_ERROR(CheckRange("the number of experts", e.num_experts, 1, kExpertsMax));
  RETURN_IF_ERROR(
      CheckRange("the number of experts per token", e.num_experts_per_tok, 1, e.num_experts));
  RETURN_IF_ERROR(CheckRange("an expert's intermediate size", e.intermediate_size, 1, 1 << 20));
  RETURN_IF_ERROR(
      CheckRange("the shared expert's intermediate size", e.shared_intermediate_size, 0, 1 << 20));
  RETURN_IF_ERROR(
      CheckRange("rows of all experts' matrices",
                 std::int64_t{e.num_experts} * std::max(e.intermediate_size, c.hidden_size), 1,
                 std::int64_t{1} << 30));
  RETURN_IF_ERROR(CheckPanels("hidden_size", c.hidden_size));
  RETURN_IF_ERROR(CheckPanels("an expert's intermediate size", e.intermediate_size));
  RETURN_IF_ERROR(CheckRange("the first layer with experts", e.first_layer, 0, 1024));
  RETURN_IF_ERROR(CheckRange("the step of layers with experts", e.step, 1, 1024));
  const RouterConfig& r = e.router;
  RETURN_IF_ERROR(CheckFinite("the scale of the experts' weights", r.scale, 1e-6, 1e6));
  RETURN_IF_ERROR(CheckRange("the number of groups of experts", r.groups, 1, e.num_experts));
  RETURN_IF_ERROR(CheckRange("the number of groups used", r.groups_used, 1, r.groups));
  if (e.num_experts % r.groups != 0 ||
      e.num_experts / r.groups * r.groups_used < e.num_experts_per_tok) {
    return base::InvalidArgument(e.num_experts, " experts in ", r.groups, " groups, of which ",
                                 r.groups_used, " are used, do not give ", e.num_experts_per_tok,
                                 " experts for a token");
  }
  return OkStatus();
}

Status ValidateLatent(const ModelConfig& c) {
  const LatentConfig& l = c.latent;
  constexpr int kRankMax = 1 << 14;
  RETURN_IF_ERROR(CheckRange("kv_lora_rank", l.kv_lora_rank, 1, kLatentHeadDimMax));
  RETURN_IF_ERROR(CheckRange("q_lora_rank", l.q_lora_rank, 0, kRankMax));
  RETURN_IF_ERROR(CheckRange("qk_nope_head_dim", l.qk_nope_head_dim, 1, kLatentHeadDimMax));
  RETURN_IF_ERROR(CheckRange("qk_rope_head_dim", l.qk_rope_head_dim, 2, kLatentHeadDimMax));
  RETURN_IF_ERROR(CheckRange("v_head_dim", l.v_head_dim, 1, kLatentHeadDimMax));
  for (const auto& [field, value] :
       {std::pair{"kv_lora_rank", l.kv_lora_rank}, {"v_head_dim", l.v_head_dim}}) {
    if (value % kernels::kPanelRows != 0)
      return base::Unimplemented(field, " ", value, " is not supported; it must be a multiple of ",
                                 kernels::kPanelRows);
  }
  return CheckFinite("yarn_log_multiplier", l.yarn_log_multiplier, 0, 1e3);
}

Status ValidateRecurrent(const ModelConfig& c) {
  const RecurrentConfig& r = c.recurrent;
  if (base::IntSize(r.mixers) != c.num_hidden_layers)
    return base::InvalidArgument("the kinds of ", r.mixers.size(), " layers are given, of ",
                                 c.num_hidden_layers);
  if (std::find(r.mixers.begin(), r.mixers.end(), Mixer::kAttention) == r.mixers.end())
    return base::Unimplemented("a model without any layer of attention is not supported");
  RETURN_IF_ERROR(CheckRange("tokens of the short convolution", r.taps, 2, kernels::kConvTapsMax));
  if (r.kind == Mixer::kShortConv) return OkStatus();
  RETURN_IF_ERROR(CheckRange("heads of the recurrent state", r.heads, 1, 1024));
  RETURN_IF_ERROR(CheckRange("key heads of the recurrent state", r.key_heads, 1, r.heads));
  RETURN_IF_ERROR(CheckRange("rows of the recurrent state", r.key_dim, 1, 1024));
  RETURN_IF_ERROR(CheckRange("columns of the recurrent state", r.value_dim, 1, 1024));
  if (r.heads % r.key_heads != 0)
    return base::InvalidArgument(r.heads, " heads of the recurrent state are no multiple of ",
                                 r.key_heads, " key heads");
  if (r.value_dim % kernels::kStateColumns != 0)
    return base::Unimplemented("recurrent heads of ", r.value_dim,
                               " values are not supported; they must be a multiple of ",
                               kernels::kStateColumns);
  return OkStatus();
}

Status ValidateAltUp(const ModelConfig& c) {
  const AltUpConfig& a = c.altup;
  RETURN_IF_ERROR(CheckRange("altup_num_inputs", a.streams, 2, 16));
  RETURN_IF_ERROR(CheckRange("laurel_rank", a.laurel_rank, 1, 1 << 14));
  RETURN_IF_ERROR(CheckRange("hidden_size_per_layer_input", a.embedding_dim, 1, 1 << 14));
  if (c.hidden_size % kernels::kPanelRows != 0)
    return base::Unimplemented("hidden_size ", c.hidden_size, " is not supported with AltUp; it ",
                               "must be a multiple of ", kernels::kPanelRows);
  if (!a.cuts.empty() && base::IntSize(a.cuts) != c.num_hidden_layers)
    return base::InvalidArgument("activation_sparsity_pattern has ", a.cuts.size(), " items for ",
                                 c.num_hidden_layers, " layers");
  for (const double cut : a.cuts) RETURN_IF_ERROR(CheckFinite("a cut of gates", cut, 0, 1e3));
  return OkStatus();
}

// Checks layers that read other layers' keys (Gemma 3n and 4).
Status ValidateSharedKeys(const ModelConfig& c) {
  const AltUpConfig& a = c.altup;
  RETURN_IF_ERROR(
      CheckRange("num_kv_shared_layers", a.shared_kv_layers, 0, c.num_hidden_layers - 1));
  for (int layer = c.NumKvLayers(); layer < c.num_hidden_layers; ++layer) {
    if ((c.WindowOf(c.KvLayerOf(layer)) > 0) != (c.WindowOf(layer) > 0))
      return base::InvalidArgument("num_kv_shared_layers is ", a.shared_kv_layers,
                                   ": no layer before them has keys of the kind of layer ", layer);
  }
  return OkStatus();
}

// Checks heads that differ by layer (Gemma 4).
Status ValidateWindowHeads(const ModelConfig& c) {
  RETURN_IF_ERROR(CheckRange("hidden_size_per_layer_input", c.altup.embedding_dim, 0, 1 << 14));
  if (!c.network_sizes.empty() && base::IntSize(c.network_sizes) != c.num_hidden_layers)
    return base::InvalidArgument("the sizes of ", c.network_sizes.size(),
                                 " networks are given, of ", c.num_hidden_layers, " layers");
  for (const int size : c.network_sizes)
    RETURN_IF_ERROR(CheckRange("a network's intermediate size", size, 1, c.intermediate_size));
  if (c.window_head_dim == 0) return OkStatus();
  RETURN_IF_ERROR(CheckRange("head_dim of layers with a window", c.window_head_dim, 1, 512));
  RETURN_IF_ERROR(CheckRange("num_key_value_heads of layers with a window", c.window_kv_heads, 1,
                             c.num_attention_heads));
  if (c.num_attention_heads % c.window_kv_heads != 0)
    return base::InvalidArgument("num_attention_heads ", c.num_attention_heads,
                                 " is no multiple of ", c.window_kv_heads,
                                 " kv heads of layers with a window");
  return OkStatus();
}

// Layers differ in their heads and in their rotation, and each is read from keys of its own.
Status CheckRotatedDimensions(const ModelConfig& c) {
  for (int l = 0; l < c.num_hidden_layers; ++l) {
    const int rotated = c.RopeOf(l).dim, dim = c.HeadsOf(l).dim;
    if (c.Rotates(l) && rotated > dim)
      return base::InvalidArgument("layer ", l, " rotates ", rotated,
                                   " dimensions of heads that have ", dim);
  }
  return OkStatus();
}

}  // namespace

Status ValidateConfig(const ModelConfig& c) {
  RETURN_IF_ERROR(CheckRange("hidden_size", c.hidden_size, 1, 1 << 17));
  RETURN_IF_ERROR(CheckRange("intermediate_size", c.intermediate_size, 1, 1 << 20));
  RETURN_IF_ERROR(CheckRange("num_hidden_layers", c.num_hidden_layers, 1, kLayersMax));
  RETURN_IF_ERROR(CheckRange("num_attention_heads", c.num_attention_heads, 1, 1024));
  RETURN_IF_ERROR(
      CheckRange("num_key_value_heads", c.num_key_value_heads, 1, c.num_attention_heads));
  RETURN_IF_ERROR(
      CheckRange("head_dim", c.head_dim, 1, c.latent.any() ? 2 * kLatentHeadDimMax : 512));
  RETURN_IF_ERROR(CheckRange("vocab_size", c.vocab_size, 1, 1 << 22));
  RETURN_IF_ERROR(CheckRange("max_position_embeddings", c.max_position_embeddings, 1, 1 << 24));
  RETURN_IF_ERROR(CheckRange("sliding_window", c.sliding_window, 0, 1 << 24));
  if (c.num_attention_heads % c.num_key_value_heads != 0) {
    return base::InvalidArgument("num_attention_heads ", c.num_attention_heads,
                                 " is no multiple of num_key_value_heads ", c.num_key_value_heads);
  }
  if (!(c.norm_eps > 0 && c.norm_eps < 1)) {
    return base::InvalidArgument("the norm's epsilon is ", c.norm_eps, "; it must lie in (0, 1)");
  }
  RETURN_IF_ERROR(CheckFinite("fatrelu_threshold", c.fatrelu_threshold, -1e6, 1e6));
  RETURN_IF_ERROR(CheckFinite("embedding_scale", c.embedding_scale, -1e6, 1e6));
  RETURN_IF_ERROR(CheckFinite("residual_scale", c.residual_scale, -1e6, 1e6));
  RETURN_IF_ERROR(CheckFinite("attention_scale", c.attention_scale, 0, 1e6));
  RETURN_IF_ERROR(CheckFinite("logit_scale", c.logit_scale, -1e6, 1e6));
  RETURN_IF_ERROR(CheckFinite("attn_logit_softcapping", c.attention_cap, 0, 1e3));
  RETURN_IF_ERROR(CheckFinite("final_logit_softcapping", c.logit_cap, 0, 1e3));
  RETURN_IF_ERROR(CheckRange("the period of layers with a window", c.window_period, 0, 1024));
  RETURN_IF_ERROR(CheckFinite("the beta of attention's temperature", c.temperature_beta, 0, 1e3));
  if (c.temperature_beta > 0)
    RETURN_IF_ERROR(
        CheckRange("the period of attention's temperature", c.temperature_period, 1, 1 << 24));
  RETURN_IF_ERROR(CheckRange("query heads of layers with a window", c.window_query_heads, 0, 1024));
  if (c.window_query_heads % c.num_key_value_heads != 0)
    return base::InvalidArgument(c.window_query_heads, " query heads of layers with a window are ",
                                 "no multiple of num_key_value_heads ", c.num_key_value_heads);
  if (c.hidden_act == Activation::kXielu && base::IntSize(c.xielu) != c.num_hidden_layers)
    return base::InvalidArgument("the activation xielu has parameters for ", c.xielu.size(), " of ",
                                 c.num_hidden_layers, " layers");
  if (c.hidden_act == Activation::kXielu && c.experts.any())
    return base::Unimplemented("experts with the activation xielu are not supported");
  if (c.experts.any()) RETURN_IF_ERROR(ValidateExperts(c));
  if (c.latent.any()) RETURN_IF_ERROR(ValidateLatent(c));
  if (c.altup.any()) RETURN_IF_ERROR(ValidateAltUp(c));
  if (c.architecture->window_heads) RETURN_IF_ERROR(ValidateWindowHeads(c));
  RETURN_IF_ERROR(ValidateSharedKeys(c));
  if (c.recurrent.any()) RETURN_IF_ERROR(ValidateRecurrent(c));
  if (c.HasWindowRope()) {
    const int dim = c.window_head_dim > 0 ? c.window_head_dim : c.head_dim;
    RETURN_IF_ERROR(ValidateRope(c.window_rope, dim));
  }
  if (c.rotary()) RETURN_IF_ERROR(ValidateRope(c.rope, c.head_dim));
  return CheckRotatedDimensions(c);
}

}  // namespace thermocline::model
