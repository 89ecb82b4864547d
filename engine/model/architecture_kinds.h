// Kinds of families: llama, from which the others differ, and what several families have in common.
// Included by architecture_table.h.
#pragma once

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

constexpr void MakeIndexed(Architecture& a) {
  MakeSigmoidLatent(a);
  a.indexed = true;
}

constexpr void MakeCohere2(Architecture& a) {
  a.norm = Norm::kLayer;
  a.hf_pairs = true;
  a.parallel_block = true;
  a.scales = true;
  a.logits_times_scale = true;
  a.window_period = 4;
  a.window_place = WindowPlace::kButLast;
  a.unrotated = true;
}

constexpr void MakeCohere2Moe(Architecture& a) {
  MakeCohere2(a);
  a.full_lead = true;
  a.shared_averaged = true;
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

constexpr void MakeGemma4(Architecture& a) {
  MakeGemma3(a);
  a.norm_plus_one = false;
  a.value_norm = true;
  a.window_heads = true;
  a.layer_inputs = true;
  a.layer_scale = true;
  a.beside_experts = true;
  a.router.input = RouterInput::kNormedResidual;
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
  a.output_gate = OutputGate::kOfQuery;
  a.recurrent = Mixer::kDeltaNet;
  a.shared_gated = true;
}

constexpr void MakeQwen35(Architecture& a) {
  MakeQwenHybrid(a);
  a.tiled_heads = true;
}

constexpr void MakeMuseGlimmer(Architecture& a) {
  a.head_norm = true;
  a.norm_plus_one = true;
  a.plain_output_norm = true;
  a.norm_place = NormPlace::kBoth;
  a.hf_norm_after_attention = true;
  a.post_norm_eps = 1e-8;
  a.embedding_norm = true;
  a.output_gate = OutputGate::kSigmoid;
  a.scales = true;
  a.logits_times_scale = true;
  a.window_period = 4;
  a.window_place = WindowPlace::kButLast;
  a.unrotated = true;
}

constexpr void MakeAfmoe(Architecture& a) {
  a.position = Position::kRotaryHalves;
  a.head_norm = true;
  a.norm_place = NormPlace::kBoth;
  a.hf_norm_after_attention = true;
  a.embedding_root = true;
  a.output_gate = OutputGate::kSigmoid;
  a.window_period = 4;
  a.window_place = WindowPlace::kButLast;
  a.unrotated = true;
  a.router.gating = Gating::kSigmoid;
}

constexpr void MakeLaguna(Architecture& a) {
  a.position = Position::kRotaryHalves;
  a.head_norm = true;
  a.output_gate = OutputGate::kSoftplus;
  a.window_period = 4;
  a.window_place = WindowPlace::kButFirst;
  a.window_queries = true;
  a.unscaled_window_rope = true;
  a.router.gating = Gating::kSigmoid;
}

constexpr void MakeLlama4(Architecture& a) {
  a.hf_pairs = true;
  a.window_period = 4;
  a.window_place = WindowPlace::kButLast;
  a.chunked = true;
  a.unrotated_period = 4;
  a.temperature_unrotated = true;
  a.turned_experts = true;
  a.router.gating = Gating::kSigmoid;
  a.router.normalise = false;
  a.router.on_input = true;
}

constexpr void MakeBert(Architecture& a) {
  a.norm = Norm::kLayer;
  a.position = Position::kLearned;
  a.activation = Activation::kGelu;
  a.gated = false;
  a.norm_place = NormPlace::kOfSum;
  a.encoder = a.encoder_norms = true;
}

// The first layer reads the normed embedding as it is.
constexpr void MakeModernBert(Architecture& a) {
  a.norm = Norm::kLayer;
  a.position = Position::kRotaryHalves;
  a.activation = Activation::kGelu;
  a.window_period = 3;
  a.window_place = WindowPlace::kButFirst;
  a.window_theta = 10000;
  a.unscaled_window_rope = true;
  a.encoder = a.encoder_norms = a.one_separator = true;
}

constexpr void MakeGemmaEmbedding(Architecture& a) {
  MakeGemma3(a);
  a.encoder = true;
}

// Positions are counted from behind the padding's.
constexpr void MakeRoberta(Architecture& a) {
  MakeBert(a);
  a.hf_position_skip = 2;
}

constexpr void MakeNemotronH(Architecture& a) {
  a.activation = Activation::kRelu2;
  a.gated = false;
  a.recurrent = Mixer::kMamba2;
  a.one_part = true;
  a.ffn_norm = "attn_norm";
  a.router.gating = Gating::kSigmoid;
}

}  // namespace thermocline::model
