// The families, each as it differs from llama. Included by architecture.cc.
#pragma once

#include <array>

#include "engine/model/architecture_kinds.h"

namespace thermocline::model {

inline constexpr std::array kArchitectures = {
    kLlama,
    // Mistral is a llama with a sliding window; its GGUF files call themselves llama.
    Variant("llama", "mistral", [](Architecture&) {}),
    // Mixtral is a llama with experts; so are its GGUF files.
    Variant("llama", "mixtral", [](Architecture&) {}),
    Variant("arcee", "arcee",
            [](Architecture& a) {
              a.activation = Activation::kRelu2;
              a.gated = false;
            }),
    Variant("ernie4_5", "ernie4_5", [](Architecture& a) { a.hf_pairs = true; }),
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
    Variant("minimax-m2", "minimax_m2",
            [](Architecture& a) {
              a.position = Position::kRotaryHalves;
              a.wide_norm = true;
              a.router.gating = Gating::kSigmoid;
            }),
    Variant("mellum", "mellum",
            [](Architecture& a) {
              a.position = Position::kRotaryHalves;
              a.head_norm = true;
              a.window_period = 4;
              a.window_place = WindowPlace::kButLast;
              a.unscaled_window_rope = true;
            }),
    Variant("exaone-moe", "exaone_moe",
            [](Architecture& a) {
              a.position = Position::kRotaryHalves;
              a.head_norm = true;
              a.window_period = 4;
              a.window_place = WindowPlace::kButLast;
              a.unrotated = true;
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
              a.router.input = RouterInput::kResidualBefore;
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
    Variant("mistral4", "mistral4",
            [](Architecture& a) {
              MakeLatent(a);
              a.temperature = true;
            }),
    // The keys that an indexer chooses are all of a context that is no longer than its choice.
    Variant("glm-dsa", "glm_moe_dsa", [](Architecture& a) { MakeIndexed(a); }),
    Variant("deepseek32", "deepseek_v32", [](Architecture& a) { MakeIndexed(a); }),
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
    // A gemma3_text with use_bidirectional_attention is this one (huggingface/config.cc).
    Variant("gemma-embedding", "gemma3_text", [](Architecture& a) { MakeGemmaEmbedding(a); }),
    Variant("llama4", "llama4_text", [](Architecture& a) { MakeLlama4(a); }),
    Variant("muse-glimmer", "muse_glimmer_text", [](Architecture& a) { MakeMuseGlimmer(a); }),
    Variant("afmoe", "afmoe", [](Architecture& a) { MakeAfmoe(a); }),
    Variant("laguna", "laguna", [](Architecture& a) { MakeLaguna(a); }),
    Variant("apertus", "apertus",
            [](Architecture& a) {
              a.position = Position::kRotaryHalves;
              a.activation = Activation::kXielu;
              a.gated = false;
              a.head_norm = true;
            }),
    Variant("gemma3n", "gemma3n_text", [](Architecture& a) { MakeGemma3n(a); }),
    Variant("gemma4", "gemma4_text", [](Architecture& a) { MakeGemma4(a); }),
    Variant("gemma4", "gemma4_unified_text", [](Architecture& a) { MakeGemma4(a); }),
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
    Variant("cohere2", "cohere2", [](Architecture& a) { MakeCohere2(a); }),
    Variant("cohere2moe", "cohere2_moe", [](Architecture& a) { MakeCohere2Moe(a); }),
    Variant("cohere2moe", "cohere2_moe",
            [](Architecture& a) {
              MakeCohere2Moe(a);
              a.norm = Norm::kRms;
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
    Variant("bert", "bert", [](Architecture& a) { MakeBert(a); }),
    Variant("bert", "xlm-roberta", [](Architecture& a) { MakeRoberta(a); }),
    Variant("bert", "roberta", [](Architecture& a) { MakeRoberta(a); }),
    Variant("modern-bert", "modernbert", [](Architecture& a) { MakeModernBert(a); }),
    Variant("nomic-bert", "",
            [](Architecture& a) {
              MakeBert(a);
              a.position = Position::kRotaryHalves;
              a.activation = Activation::kSilu;
              a.gated = true;
            }),
    // Its folders call themselves bert.
    Variant("jina-bert-v2", "",
            [](Architecture& a) {
              MakeBert(a);
              a.position = Position::kDistance;
              a.gated = true;
            }),
    Variant("jina-bert-v3", "jina_embeddings_v3",
            [](Architecture& a) {
              MakeBert(a);
              a.position = Position::kRotaryHalves;
            }),
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
