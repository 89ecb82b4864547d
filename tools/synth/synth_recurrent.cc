#include "tools/synth/synth_recurrent.h"

#include <algorithm>

namespace thermocline::tools {

const char* FamilyOf(const SynthParams& p) {
  switch (p.mixer) {
    case model::Mixer::kDeltaNet:
      return p.experts > 0 ? "qwen35moe" : "qwen35";
    case model::Mixer::kMamba2:
      return "granitehybrid";
    case model::Mixer::kShortConv:
      return p.experts > 0 ? "lfm2moe" : "lfm2";
    default:
      return p.opt ? "opt" : "llama";
  }
}

void SetMixers(const SynthParams& p, model::ModelConfig& c) {
  constexpr int kTaps = 4, kTapsAlone = 3;
  if (p.mixer == model::Mixer::kAttention) return;
  model::RecurrentConfig& r = c.recurrent;
  r.kind = p.mixer;
  r.taps = kTapsAlone;
  r.mixers.assign(p.layers, p.mixer);
  for (int l = p.attention_every - 1; l < p.layers; l += p.attention_every)
    r.mixers[l] = model::Mixer::kAttention;
  if (c.architecture->shared_gated && p.experts > 0)
    c.experts.shared_intermediate_size = p.intermediate_size;
  c.experts.shared_gated = c.architecture->shared_gated;
  c.unrotated = p.mixer == model::Mixer::kMamba2;
  c.hidden_act = model::Activation::kSilu;
  if (p.mixer == model::Mixer::kShortConv) return;
  r.taps = kTaps;
  r.heads = p.state_heads;
  r.key_heads = p.state_key_heads;
  r.key_dim = p.state_key_dim;
  r.value_dim = p.state_value_dim;
  r.tiled = c.architecture->tiled_heads;
}

void AddRecurrent(const AddPlain& plain, const std::string& prefix, model::ModelFile& file) {
  const model::RecurrentConfig& c = file.config.recurrent;
  const int d = file.config.hidden_size, channels = c.channels(d), inner = c.inner();
  const auto vector = [&](const char* name, int n, float value) {
    file.AddVector(prefix + name, std::vector<float>(n, value));
  };
  const auto rows = [&](const char* name, int count, int cols, float value) {
    file.AddMatrix(prefix + name, count, cols, [value](std::int64_t, std::span<float> out) {
      std::fill(out.begin(), out.end(), value);
      return OkStatus();
    });
  };
  if (c.kind == model::Mixer::kShortConv) {
    plain("shortconv.in_proj.weight", 20, 3 * d, d, 1);
    plain("shortconv.conv.weight", 21, d, c.taps, 1);
    return plain("shortconv.out_proj.weight", 22, d, d, kQuiet);
  }
  if (c.kind == model::Mixer::kDeltaNet) {
    plain("attn_qkv.weight", 20, channels, d, 1);
    plain("attn_gate.weight", 23, inner, d, 1);
    plain("ssm_alpha.weight", 24, c.heads, d, 1);
    plain("ssm_beta.weight", 25, c.heads, d, 1);
    vector("ssm_norm.weight", c.value_dim, 1);
  } else {
    plain("ssm_in.weight", 20, inner + channels + c.heads, d, 1);
    vector("ssm_conv1d.bias", channels, 0);
    rows("ssm_d", c.heads, 1, 1);
    rows("ssm_norm.weight", c.key_heads, inner / c.key_heads, 1);
  }
  plain("ssm_conv1d.weight", 21, channels, c.taps, 1);
  if (c.kind == model::Mixer::kMamba2) {
    rows("ssm_a", c.heads, 1, -0.05F);
  } else {
    vector("ssm_a", c.heads, -0.05F);
  }
  vector("ssm_dt.bias", c.heads, 0);
  plain("ssm_out.weight", 22, d, inner, kQuiet);
}

void AddSharedExpert(const AddPlain& plain, const std::string& prefix, model::ModelFile& file) {
  const int d = file.config.hidden_size, f = file.config.experts.shared_intermediate_size;
  if (f == 0) return;
  plain("ffn_gate_shexp.weight", 26, f, d, 1);
  plain("ffn_up_shexp.weight", 27, f, d, 1);
  plain("ffn_down_shexp.weight", 28, d, f, kQuiet);
  file.AddVector(prefix + "ffn_gate_inp_shexp.weight", std::vector<float>(d, 0.0F));
}

}  // namespace thermocline::tools
