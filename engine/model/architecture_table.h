// The families, each as it differs from llama. Included by architecture.cc.
#pragma once

#include <array>

#include "engine/model/architecture.h"

namespace thermocline::model {

inline constexpr Architecture kLlama = {.name = "llama",
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
                                        .window_place = WindowPlace::kFirst,
                                        .unrotated = false,
                                        .unrotated_period = 0,
                                        .yarn_truncate = true,
                                        .scales = false,
                                        .logits_times_scale = false,
                                        .embedding_root = false,
                                        .norm_after_rope = false,
                                        .value_norm = false,
                                        .altup = false,
                                        .temperature = false,
                                        .unscaled_window_rope = false,
                                        .window_theta = 0,
                                        .norm_place = NormPlace::kBefore,
                                        .sub_norms = false,
                                        .hf_norm_after_attention = false,
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

constexpr void MakeBitNet(Architecture& a) {
  a.position = Position::kRotaryHalves;
  a.activation = Activation::kRelu2;
  a.sub_norms = true;
}

constexpr void MakeGemma(Architecture& a) {
  a.position = Position::kRotaryHalves;
  a.activation = Activation::kGeluTanh;
  a.norm_plus_one = true;
  a.embedding_root = true;
}

constexpr void MakeGemma3(Architecture& a) {
  MakeGemma(a);
  a.head_norm = true;
  a.norm_place = NormPlace::kBoth;
  a.hf_norm_after_attention = true;
  a.window_period = 6;
  a.window_place = WindowPlace::kButLast;
  a.window_theta = 10000;
  a.unscaled_window_rope = true;
}

constexpr void MakeGemma3n(Architecture& a) {
  MakeGemma3(a);
  a.norm_plus_one = false;
  a.window_period = 5;
  a.value_norm = true;
  a.altup = true;
}

constexpr void MakeOlmo2(Architecture& a) {
  a.position = Position::kRotaryHalves;
  a.wide_norm = true;
  a.norm_place = NormPlace::kAfter;
  a.hf_norm_after_attention = true;
  a.window_period = 4;
  a.window_place = WindowPlace::kButLast;
  a.unscaled_window_rope = true;
}

constexpr void MakeLfm2(Architecture& a) {
  a.position = Position::kRotaryHalves;
  a.head_norm = true;
  a.recurrent = Mixer::kShortConv;
  a.output_norm = "token_embd_norm";
}

constexpr void MakeQwenHybrid(Architecture& a) {
  a.position = Position::kRotaryHalves;
  a.head_norm = true;
  a.norm_plus_one = true;
  a.ffn_norm = "post_attention_norm";
  a.attention_gate = true;
  a.recurrent = Mixer::kDeltaNet;
  a.shared_gated = true;
}

constexpr void MakeQwen35(Architecture& a) {
  MakeQwenHybrid(a);
  a.tiled_heads = true;
}

constexpr void MakeNemotronH(Architecture& a) {
  a.activation = Activation::kRelu2;
  a.gated = false;
  a.recurrent = Mixer::kMamba2;
  a.one_part = true;
  a.ffn_norm = "attn_norm";
  a.router.gating = Gating::kSigmoid;
}

inline constexpr std::array kArchitectures = {
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
              a.window_place = WindowPlace::kButFirst;
              a.unrotated = true;
              a.router.gating = Gating::kSigmoid;
              a.router.before_attention = true;
            }),
    // GGUF files of any of these name their router; groups are DeepSeek-V2's if it is softmax
    // (gguf/config.cc).
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
    Variant("granite", "granite", [](Architecture& a) { a.scales = true; }),
    Variant("smollm3", "smollm3", [](Architecture& a) { a.unrotated_period = 4; }),
    Variant("gemma", "gemma", [](Architecture& a) { MakeGemma(a); }),
    Variant("gemma2", "gemma2",
            [](Architecture& a) {
              MakeGemma(a);
              a.norm_place = NormPlace::kBoth;
              a.hf_norm_after_attention = true;
              a.window_period = 2;
            }),
    Variant("gemma3", "gemma3_text", [](Architecture& a) { MakeGemma3(a); }),
    Variant("gemma3n", "gemma3n_text", [](Architecture& a) { MakeGemma3n(a); }),
    // Phi 4 and 4-mini are phi3.
    Variant("phi3", "phi3", [](Architecture& a) { a.position = Position::kRotaryHalves; }),
    Variant("olmo2", "olmo2", [](Architecture& a) { MakeOlmo2(a); }),
    // Its GGUF files call themselves olmo2.
    Variant("olmo2", "olmo3", [](Architecture& a) { MakeOlmo2(a); }),
    Variant("exaone4", "exaone4",
            [](Architecture& a) {
              a.position = Position::kRotaryHalves;
              a.head_norm = true;
              a.norm_place = NormPlace::kAfter;
              a.hf_norm_after_attention = true;
              a.window_period = 4;
              a.window_place = WindowPlace::kButLast;
              a.unrotated = true;
            }),
    Variant("cohere2", "cohere2",
            [](Architecture& a) {
              a.norm = Norm::kLayer;
              a.hf_pairs = true;
              a.parallel_block = true;
              a.scales = true;
              a.logits_times_scale = true;
              a.window_period = 4;
              a.window_place = WindowPlace::kButLast;
              a.unrotated = true;
            }),
    Variant("glm4", "glm4",
            [](Architecture& a) {
              a.hf_pairs = true;
              a.qkv_bias = QkvBias::kOptional;
              a.norm_place = NormPlace::kBoth;
            }),
    Variant("stablelm", "stablelm",
            [](Architecture& a) {
              a.norm = Norm::kLayer;
              a.position = Position::kRotaryHalves;
              a.qkv_bias = QkvBias::kOptional;
            }),
    Variant("starcoder2", "starcoder2",
            [](Architecture& a) {
              a.norm = Norm::kLayer;
              a.position = Position::kRotaryHalves;
              a.activation = Activation::kGeluTanh;
              a.gated = false;
            }),
    Variant("internlm2", "internlm2", [](Architecture&) {}),
    Variant("seed_oss", "seed_oss",
            [](Architecture& a) {
              a.position = Position::kRotaryHalves;
              a.qkv_bias = QkvBias::kAlone;
              a.ffn_norm = "post_attention_norm";
            }),
    Variant("mistral3", "ministral3", [](Architecture& a) { a.temperature = true; }),
    Variant("minicpm", "minicpm", [](Architecture& a) { a.scales = true; }),
    // llama.cpp's files call it bitnet and Microsoft's forks otherwise (gguf/config.cc).
    Variant("bitnet", "bitnet", [](Architecture& a) { MakeBitNet(a); }),
    Variant("bitnet-b1.58", "", [](Architecture& a) { MakeBitNet(a); }),
    Variant("bitnet-25", "", [](Architecture& a) { MakeBitNet(a); }),
    Variant("lfm2", "lfm2", [](Architecture& a) { MakeLfm2(a); }),
    Variant("lfm2moe", "lfm2_moe",
            [](Architecture& a) {
              MakeLfm2(a);
              a.router.gating = Gating::kSigmoid;
            }),
    Variant("qwen3next", "qwen3_next", [](Architecture& a) { MakeQwenHybrid(a); }),
    Variant("qwen35", "qwen3_5_text", [](Architecture& a) { MakeQwen35(a); }),
    Variant("qwen35moe", "qwen3_5_moe_text", [](Architecture& a) { MakeQwen35(a); }),
    Variant("granitehybrid", "granitemoehybrid",
            [](Architecture& a) {
              a.scales = true;
              a.recurrent = Mixer::kMamba2;
            }),
    Variant("nemotron_h", "", [](Architecture& a) { MakeNemotronH(a); }),
    Variant("nemotron_h_moe", "nemotron_h", [](Architecture& a) { MakeNemotronH(a); }),
    Variant("hunyuan-dense", "hunyuan_v1_dense",
            [](Architecture& a) {
              a.position = Position::kRotaryHalves;
              a.head_norm = true;
              a.norm_after_rope = true;
            }),
};

}  // namespace thermocline::model
