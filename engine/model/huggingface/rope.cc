// Rotary positions in Hugging Face's config.json. Old files have rope_theta and rope_scaling, new
// ones have rope_parameters for both, in some files by kind of layer.
#include <algorithm>
#include <cmath>

#include "engine/base/ratio.h"
#include "engine/model/huggingface/config.h"
#include "engine/model/huggingface/fields.h"

namespace thermocline::model {
namespace {

using hf::Double;
using hf::FindFirst;
using hf::Flag;
using hf::Int;
using hf::String;

// Returns yarn's factor of rotations, for a model with `scale` times the usual magnitude.
double YarnMagnitude(double factor, double scale) {
  return factor <= 1 ? 1.0 : 0.1 * scale * std::log(factor) + 1;
}

// DeepSeek's yarn scales scores, not rotations; other models use the quotient of two magnitudes.
Status ReadMScale(const Json& scaling, RopeConfig& rope, ModelConfig& c) {
  ASSIGN_OR_RETURN(const double all, Double(scaling, {"mscale_all_dim"}, 0.0));
  ASSIGN_OR_RETURN(const double rotated,
                   Double(scaling, {"mscale"}, c.architecture->latent ? all : 0.0));
  if (all == 0) return OkStatus();
  if (!c.architecture->latent) {
    if (rope.attention_factor == 0 && rotated != 0)
      rope.attention_factor = YarnMagnitude(rope.factor, rotated) / YarnMagnitude(rope.factor, all);
    return OkStatus();
  }
  if (rotated != all)
    return base::Unimplemented("mscale ", rotated, " with mscale_all_dim ", all,
                               " is not supported in the architecture '", c.architecture->name,
                               "'");
  constexpr double kPerLog = 0.1;
  c.latent.yarn_log_multiplier = kPerLog * all;
  rope.attention_factor = 1;
  return OkStatus();
}

Status ReadYarn(const Json& scaling, int original, RopeConfig& rope, ModelConfig& c) {
  rope.scaling = RopeScaling::kYarn;
  rope.original_max_position = original;
  ASSIGN_OR_RETURN(rope.beta_fast, Double(scaling, {"beta_fast"}, 32.0));
  ASSIGN_OR_RETURN(rope.beta_slow, Double(scaling, {"beta_slow"}, 1.0));
  ASSIGN_OR_RETURN(rope.attention_factor, Double(scaling, {"attention_factor"}, 0.0));
  RETURN_IF_ERROR(ReadMScale(scaling, rope, c));
  rope.truncate = Flag(scaling, "truncate", true);
  if (rope.truncate != c.architecture->yarn_truncate)
    return base::Unimplemented("rope scaling's truncate = ", rope.truncate ? "true" : "false",
                               " is not supported in the architecture '", c.architecture->name,
                               "'");
  return OkStatus();
}

Status ReadBands(const Json& scaling, int original, RopeConfig& rope) {
  Llama3Bands bands{.factor = rope.factor, .original_max_position = original};
  ASSIGN_OR_RETURN(bands.low_freq_factor, Double(scaling, {"low_freq_factor"}, 1.0));
  ASSIGN_OR_RETURN(bands.high_freq_factor, Double(scaling, {"high_freq_factor"}, 4.0));
  if (!(bands.high_freq_factor > bands.low_freq_factor) || original < 1)
    return base::InvalidArgument("rope scaling ", scaling.Dump(),
                                 ": high_freq_factor must exceed low_freq_factor");
  rope.divisors = Llama3Divisors(rope, bands);
  rope.factor = 1;
  return OkStatus();
}

Result<std::vector<float>> Factors(const Json& scaling, const char* key) {
  std::vector<float> out;
  const Json* list = scaling.Find(key);
  if (list == nullptr || !list->is_array())
    return base::InvalidArgument("field '", key, "' of the rope scaling is no list");
  for (const Json& item : list->as_array()) {
    if (!item.is_number())
      return base::InvalidArgument("field '", key, "' holds ", item.Dump(), ", not a number");
    out.push_back(static_cast<float>(item.as_double()));
  }
  return out;
}

Status ReadLong(const Json& scaling, int original, RopeConfig& rope, const ModelConfig& c) {
  rope.scaling = RopeScaling::kLong;
  rope.original_max_position = original;
  ASSIGN_OR_RETURN(rope.divisors, Factors(scaling, "short_factor"));
  ASSIGN_OR_RETURN(rope.long_divisors, Factors(scaling, "long_factor"));
  const double ratio = base::Ratio(c.max_position_embeddings, std::max(original, 1));
  ASSIGN_OR_RETURN(rope.factor, Double(scaling, {"factor"}, std::max(1.0, ratio)));
  ASSIGN_OR_RETURN(rope.attention_factor, Double(scaling, {"attention_factor"}, 0.0));
  return OkStatus();
}

// Hunyuan's alpha changes theta; in other families the length of the context is given.
Status ReadDynamic(const Json& scaling, int original, RopeConfig& rope, ModelConfig& c) {
  ASSIGN_OR_RETURN(const double alpha, Double(scaling, {"alpha"}, 0.0));
  if (alpha > 0) {
    rope.theta *= std::pow(alpha, rope.dim / std::max(rope.dim - 2.0, 1.0));
  } else {
    rope.theta = NtkTheta(rope.theta, rope.dim, rope.factor);
    c.max_position_embeddings = static_cast<int>(std::min(original * rope.factor, 2e9));
  }
  rope.factor = 1;
  return OkStatus();
}

// The field outside of `scaling` takes precedence over the one inside.
Result<int> OriginalPositions(const Json& json, const Json& scaling, const ModelConfig& c) {
  constexpr const char* kField = "original_max_position_embeddings";
  ASSIGN_OR_RETURN(const int inner, Int(scaling, {kField}, c.max_position_embeddings));
  return Int(json, {kField}, inner);
}

Status ReadScaling(const Json& json, const Json& scaling, RopeConfig& rope, ModelConfig& c) {
  RETURN_IF_ERROR(CheckTypes(scaling));
  const std::string type = String(scaling, {"rope_type", "type"}, "default");
  if (type == "default") return OkStatus();
  ASSIGN_OR_RETURN(rope.factor, Double(scaling, {"factor"}, 1.0));
  if (!(rope.factor >= 1 && rope.factor <= 1e6))
    return base::InvalidArgument("rope scaling factor is ", rope.factor,
                                 "; it must lie in [1, 1000000]");
  ASSIGN_OR_RETURN(const int original, OriginalPositions(json, scaling, c));
  if (type == "linear") {
    rope.scaling = RopeScaling::kLinear;
    return OkStatus();
  }
  if (type == "dynamic") return ReadDynamic(scaling, original, rope, c);
  if (type == "yarn") return ReadYarn(scaling, original, rope, c);
  if (type == "llama3") return ReadBands(scaling, original, rope);
  if (type == "longrope" || type == "su") return ReadLong(scaling, original, rope, c);
  return base::Unimplemented("rope scaling '", type,
                             "' is not supported; supported are default, linear, dynamic, yarn, "
                             "llama3 and longrope");
}

// Returns divisors by which the first dimensions of a head are rotated, and the others are not,
// while the frequencies are those of a head that is rotated whole. Source: Gemma 4.
std::vector<float> ProportionalDivisors(int head_dim, double share) {
  constexpr float kNever = 1e30F;
  std::vector<float> out(head_dim / 2, kNever);
  std::fill_n(out.begin(), std::min(head_dim / 2, static_cast<int>(head_dim * share / 2)), 1.0F);
  return out;
}

// `theta`: the default. `head_dim`: of the layers with that rotation.
Status ReadOne(const Json& json, const Json& scaling, double theta, int head_dim, RopeConfig& rope,
               ModelConfig& c) {
  constexpr int kHeadDimMax = 1 << 16;  // of any family; a number for each dimension is kept
  if (head_dim > kHeadDimMax)
    return base::InvalidArgument("heads of ", head_dim, " dimensions are not read");
  ASSIGN_OR_RETURN(rope.theta, Double(scaling, {"rope_theta"}, theta));
  ASSIGN_OR_RETURN(const int rotated, Int(json, {"rotary_dim"}, head_dim));
  ASSIGN_OR_RETURN(const double top_share, Double(json, {"partial_rotary_factor"},
                                                  base::Ratio(rotated, std::max(head_dim, 1))));
  ASSIGN_OR_RETURN(double share, Double(scaling, {"partial_rotary_factor"}, top_share));
  if (c.architecture->latent) share = 1;  // head_dim is that of the rotated part
  if (!(share > 0 && share <= 1))
    return base::InvalidArgument("partial_rotary_factor is ", share, "; it must lie in (0, 1]");
  if (String(scaling, {"rope_type"}, "") == "proportional") {
    rope.dim = head_dim;
    rope.divisors = ProportionalDivisors(head_dim, share);
    return OkStatus();
  }
  rope.dim = static_cast<int>(head_dim * share);
  if (rope.dim < 2 || rope.dim % 2 != 0)
    return base::InvalidArgument("partial_rotary_factor ", share, " of heads of ", head_dim,
                                 " rotates ", rope.dim, " dimensions; they must be even");
  return ReadScaling(json, scaling, rope, c);
}

// Checks that layers with a window differ only in theta, the one difference that our files and
// llama.cpp's can express.
Status CheckWindowRope(const Architecture& a, ModelConfig& c) {
  const RopeConfig& of = c.window_rope;
  const bool plain = of.scaling == RopeScaling::kNone && of.divisors.empty() &&
                     (a.window_heads || a.window_queries || of.dim == c.rope.dim);
  if (a.unscaled_window_rope && plain) return OkStatus();
  const bool same = of.scaling == c.rope.scaling && of.divisors == c.rope.divisors &&
                    of.dim == c.rope.dim && of.theta == c.rope.theta && of.factor == c.rope.factor;
  if (!same)
    return base::Unimplemented(
        "rope_parameters of sliding_attention other than a rope_theta are not ",
        "supported in the architecture '", a.name, "'");
  c.window_rope = {};
  return OkStatus();
}

}  // namespace

Status ReadHuggingFaceRope(const Json& json, ModelConfig& c) {
  static const Json kNone{Json::Object()};
  const Json* all = FindFirst(json, {"rope_parameters", "rope_scaling"});
  if (all == nullptr) all = &kNone;
  if (!all->is_object())
    return base::InvalidArgument("rope_scaling is ", all->Dump(), ", not an object");
  const auto part = [&](const char* kind) {
    const Json* found = all->Find(kind);
    return found != nullptr && found->is_object() ? found : nullptr;
  };
  const Json *full = part("full_attention"), *window = part("sliding_attention");
  ASSIGN_OR_RETURN(const double theta, Double(json, {"rope_theta", "global_rope_theta"}, 10000.0));
  const Json& whole = full != nullptr ? *full : *all;
  RETURN_IF_ERROR(ReadOne(json, whole, theta, c.head_dim, c.rope, c));
  const Architecture& a = *c.architecture;
  if (a.temperature) {
    ASSIGN_OR_RETURN(c.temperature_beta, Double(whole, {"llama_4_scaling_beta"}, 0.0));
    ASSIGN_OR_RETURN(c.temperature_period, OriginalPositions(json, whole, c));
  }
  if (a.temperature_unrotated && Flag(json, "attn_temperature_tuning", true)) {
    ASSIGN_OR_RETURN(c.temperature_beta, Double(json, {"attn_scale"}, kLlama4TemperatureBeta));
    ASSIGN_OR_RETURN(c.temperature_period, Int(json, {"floor_scale"}, kLlama4TemperaturePeriod));
  }
  if (c.sliding_window == 0 || (window == nullptr && !a.unscaled_window_rope)) return OkStatus();
  const double absent = a.window_theta > 0 ? a.window_theta : c.rope.theta;
  ASSIGN_OR_RETURN(const double local,
                   Double(json, {"rope_local_base_freq", "local_rope_theta"}, absent));
  const int head_dim = c.window_head_dim > 0 ? c.window_head_dim : c.head_dim;
  RETURN_IF_ERROR(
      ReadOne(json, window != nullptr ? *window : kNone, local, head_dim, c.window_rope, c));
  return CheckWindowRope(*c.architecture, c);
}

}  // namespace thermocline::model
