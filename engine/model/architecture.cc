#include "engine/model/architecture.h"

#include <array>

namespace thermocline::model {
namespace {

constexpr Architecture kLlama = {.name = "llama",
                                 .hf_name = "llama",
                                 .norm = Norm::kRms,
                                 .position = Position::kRotaryPairs,
                                 .activation = Activation::kSilu,
                                 .gated = true,
                                 .parallel_block = false,
                                 .head_norm = false,
                                 .wide_norm = false,
                                 .second_norm = false,
                                 .norm_plus_one = false,
                                 .qkv_bias = QkvBias::kWithOutput,
                                 .position_offset = 0,
                                 .hf_pairs = false,
                                 .hf_gpt_oss = false,
                                 .ffn_norm = "ffn_norm",
                                 .optional_norms = false,
                                 .biased = false,
                                 .sinks = false,
                                 .window_period = 1,
                                 .window_between = false,
                                 .unrotated = false,
                                 .yarn_truncate = true,
                                 .scales = false,
                                 .latent = false,
                                 .router = {.normalise = true}};

// A family as it differs from llama.
template <typename Change>
constexpr Architecture Variant(std::string_view name, std::string_view hf_name,
                               const Change& change) {
  Architecture a = kLlama;
  a.name = name;
  a.hf_name = hf_name;
  change(a);
  return a;
}

constexpr void MakeLatent(Architecture& a) {
  a.latent = true;
  a.hf_pairs = true;
}

constexpr void MakeSigmoidLatent(Architecture& a) {
  MakeLatent(a);
  a.router.gating = Gating::kSigmoid;
}

constexpr std::array kArchitectures = {
    kLlama,
    // Mistral is a llama with a sliding window; its GGUF files call themselves llama.
    Variant("llama", "mistral", [](Architecture&) {}),
    // Mixtral is a llama with experts; so are its GGUF files.
    Variant("llama", "mixtral", [](Architecture&) {}),
    Variant("bamboo", "bamboo", [](Architecture& a) { a.activation = Activation::kDRelu; }),
    Variant("qwen2", "qwen2",
            [](Architecture& a) {
              a.position = Position::kRotaryHalves;
              a.qkv_bias = QkvBias::kAlone;
            }),
    Variant("qwen3", "qwen3",
            [](Architecture& a) {
              a.position = Position::kRotaryHalves;
              a.head_norm = true;
            }),
    Variant("qwen2moe", "qwen2_moe",
            [](Architecture& a) {
              a.position = Position::kRotaryHalves;
              a.qkv_bias = QkvBias::kAlone;
              a.router.normalise = false;
              a.shared_gated = true;
            }),
    Variant("qwen3moe", "qwen3_moe",
            [](Architecture& a) {
              a.position = Position::kRotaryHalves;
              a.head_norm = true;
            }),
    Variant("olmoe", "olmoe",
            [](Architecture& a) {
              a.position = Position::kRotaryHalves;
              a.wide_norm = true;
              a.router.normalise = false;
            }),
    Variant("granitemoe", "granitemoe", [](Architecture& a) { a.scales = true; }),
    Variant("granitemoe", "granitemoeshared", [](Architecture& a) { a.scales = true; }),
    Variant("ernie4_5-moe", "ernie4_5_moe",
            [](Architecture& a) {
              a.hf_pairs = true;
              a.router.norm_min = 1e-12;
            }),
    Variant("glm4moe", "glm4_moe",
            [](Architecture& a) {
              a.position = Position::kRotaryHalves;
              a.qkv_bias = QkvBias::kAlone;
              a.head_norm = true;
              a.optional_norms = true;
              a.ffn_norm = "post_attention_norm";
              a.router.gating = Gating::kSigmoid;
            }),
    Variant("smallthinker", "smallthinker",
            [](Architecture& a) {
              a.position = Position::kRotaryHalves;
              a.activation = Activation::kRelu;
              a.window_period = 4;
              a.window_between = true;
              a.unrotated = true;
              a.router.gating = Gating::kSigmoid;
              a.router.before_attention = true;
            }),
    // A GGUF file of any of these says which router it has; groups are DeepSeek-V2's where that is
    // softmax (gguf_config.cc).
    Variant("deepseek2", "deepseek_v2",
            [](Architecture& a) {
              MakeLatent(a);
              a.router.normalise = false;
              a.router.group_score = GroupScore::kMax;
            }),
    Variant("deepseek2", "deepseek_v3", [](Architecture& a) { MakeSigmoidLatent(a); }),
    Variant("deepseek2", "kimi_k2", [](Architecture& a) { MakeSigmoidLatent(a); }),
    Variant("deepseek2", "glm4_moe_lite", [](Architecture& a) { MakeSigmoidLatent(a); }),
    Variant("gpt-oss", "gpt_oss",
            [](Architecture& a) {
              a.position = Position::kRotaryHalves;
              a.activation = Activation::kClampedSwiglu;
              a.ffn_norm = "post_attention_norm";
              a.biased = true;
              a.sinks = true;
              a.hf_gpt_oss = true;
              a.window_period = 2;
              a.yarn_truncate = false;
              a.router.gating = Gating::kSoftmaxOfChosen;
            }),
    Variant("nemotron", "nemotron",
            [](Architecture& a) {
              a.norm = Norm::kLayer;
              a.position = Position::kRotaryHalves;
              a.activation = Activation::kRelu2;
              a.gated = false;
              a.norm_plus_one = true;
            }),
    Variant("phi2", "phi",
            [](Architecture& a) {
              a.norm = Norm::kLayer;
              a.position = Position::kRotaryHalves;
              a.activation = Activation::kGeluTanh;
              a.gated = false;
              a.parallel_block = true;
            }),
    Variant("falcon", "falcon",
            [](Architecture& a) {
              a.norm = Norm::kLayer;
              a.position = Position::kRotaryHalves;
              a.activation = Activation::kGelu;
              a.gated = false;
              a.parallel_block = true;
              a.second_norm = true;
            }),
    Variant("persimmon", "persimmon",
            [](Architecture& a) {
              a.norm = Norm::kLayer;
              a.position = Position::kRotaryHalves;
              a.activation = Activation::kRelu2;
              a.gated = false;
              a.head_norm = true;
            }),
    Variant("opt", "opt",
            [](Architecture& a) {
              a.norm = Norm::kLayer;
              a.position = Position::kLearned;
              a.activation = Activation::kRelu;
              a.gated = false;
              a.position_offset = 2;
            }),
};

Status Unsupported(std::string_view what, std::string_view name, bool hugging_face) {
  std::string names;
  for (const Architecture& a : kArchitectures) {
    const std::string_view next = hugging_face ? a.hf_name : a.name;
    if (next.empty() || names.ends_with(next)) continue;  // mistral is a llama
    names += (names.empty() ? "" : ", ") + std::string(next);
  }
  return base::Unimplemented(what, " '", name, "' is not supported; supported are ", names);
}

struct NamedActivation {
  std::string_view name;
  Activation activation;
};
// Names beside kActivationNames, which we write.
constexpr std::array kActivationAliases = {
    NamedActivation{"swish", Activation::kSilu},
    NamedActivation{"gelu_new", Activation::kGeluTanh},
    NamedActivation{"gelu_pytorch_tanh", Activation::kGeluTanh},
};

}  // namespace

Result<const Architecture*> FindArchitecture(std::string_view name) {
  for (const Architecture& a : kArchitectures) {
    if (a.name == name) return &a;
  }
  return Unsupported("architecture", name, false);
}

Result<const Architecture*> FindHuggingFaceArchitecture(std::string_view model_type) {
  for (const Architecture& a : kArchitectures) {
    if (a.hf_name == model_type && !model_type.empty()) return &a;
  }
  return Unsupported("model_type", model_type, true);
}

Result<Activation> ParseActivation(std::string_view name) {
  for (std::size_t i = 0; i < kActivationNames.size(); ++i) {
    if (kActivationNames[i] == name) return static_cast<Activation>(i);
  }
  for (const NamedActivation& known : kActivationAliases) {
    if (known.name == name) return known.activation;
  }
  return base::Unimplemented("activation '", name,
                             "' is not supported; supported are silu, relu, fatrelu, drelu, relu2, "
                             "gelu, gelu_tanh, clamped_swiglu");
}

}  // namespace thermocline::model
