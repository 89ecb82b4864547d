// The defaults of missing fields of config.json: transformers writes, and publishers keep, only the
// fields that differ from a family's defaults. Source: transformers' configuration classes.
#include <array>
#include <string_view>

#include "engine/base/json.h"
#include "engine/model/huggingface/config.h"

namespace thermocline::model {
namespace {

struct FamilyDefaults {
  std::string_view model_type, fields;
};
constexpr std::string_view kGemma4 = R"({"tie_word_embeddings": true, "head_dim": 256,
        "vocab_size": 262144, "hidden_size": 2304, "intermediate_size": 9216,
        "num_hidden_layers": 30, "num_attention_heads": 8, "num_key_value_heads": 4,
        "max_position_embeddings": 131072, "sliding_window": 512,
        "hidden_size_per_layer_input": 256, "rope_parameters": {
          "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
          "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25,
                             "rope_theta": 1000000.0}}})";
constexpr std::array kDefaults = {
    FamilyDefaults{"mistral", R"({"sliding_window": 4096})"},
    FamilyDefaults{"qwen2", R"({"use_sliding_window": false, "sliding_window": 4096,
        "max_window_layers": 28})"},
    FamilyDefaults{"qwen3", R"({"use_sliding_window": false, "sliding_window": 4096,
        "max_window_layers": 28})"},
    FamilyDefaults{"qwen2_moe", R"({"use_sliding_window": false, "sliding_window": 4096,
        "max_window_layers": 28})"},
    FamilyDefaults{"qwen3_moe", R"({"use_sliding_window": false, "sliding_window": 4096,
        "max_window_layers": 28})"},
    FamilyDefaults{"gemma", R"({"tie_word_embeddings": true, "head_dim": 256})"},
    FamilyDefaults{"gemma2", R"({"tie_word_embeddings": true, "head_dim": 256,
        "max_position_embeddings": 8192, "query_pre_attn_scalar": 256, "sliding_window": 4096,
        "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0})"},
    FamilyDefaults{"gemma3_text", R"({"tie_word_embeddings": true, "head_dim": 256,
        "vocab_size": 262208, "hidden_size": 2304, "intermediate_size": 9216,
        "num_hidden_layers": 26, "num_attention_heads": 8, "num_key_value_heads": 4,
        "max_position_embeddings": 131072, "query_pre_attn_scalar": 256, "sliding_window": 4096,
        "rope_theta": 1000000.0})"},
    FamilyDefaults{"gemma3n_text", R"({"tie_word_embeddings": true, "head_dim": 256,
        "vocab_size": 262400, "hidden_size": 2048, "intermediate_size": 16384,
        "num_hidden_layers": 35, "num_attention_heads": 8, "num_key_value_heads": 2,
        "max_position_embeddings": 32768, "sliding_window": 512, "rope_theta": 1000000.0,
        "final_logit_softcapping": 30.0, "hidden_size_per_layer_input": 256,
        "altup_num_inputs": 4, "num_kv_shared_layers": 15, "laurel_rank": 64})"},
    FamilyDefaults{"gemma4_text", kGemma4},
    FamilyDefaults{"gemma4_unified_text", kGemma4},
    FamilyDefaults{"cohere2", R"({"tie_word_embeddings": true, "logit_scale": 0.0625,
        "sliding_window": 4096, "max_position_embeddings": 8192})"},
    FamilyDefaults{"cohere2_moe", R"({"tie_word_embeddings": true, "logit_scale": 0.0625,
        "sliding_window": 4096, "max_position_embeddings": 8192, "head_dim": 128,
        "expert_selection_fn": "softmax"})"},
    FamilyDefaults{"llama4_text", R"({"head_dim": 128, "rms_norm_eps": 1e-5,
        "rope_theta": 500000.0, "num_shared_experts": 1, "attention_chunk_size": 8192})"},
    FamilyDefaults{"muse_glimmer_text", R"({"head_dim": 128, "rms_norm_eps": 1e-5,
        "sliding_window": 2048, "qk_scale_factor": 3.87, "output_multiplier": 0.19611613513818404,
        "final_logit_softcapping": 20.0})"},
    FamilyDefaults{"afmoe", R"({"head_dim": 128, "rms_norm_eps": 1e-5, "sliding_window": 1024,
        "num_dense_layers": 1, "num_shared_experts": 2})"},
    FamilyDefaults{"laguna", R"({"head_dim": 128, "sliding_window": 512,
        "num_key_value_heads": 8, "shared_expert_intermediate_size": 512})"},
    FamilyDefaults{"apertus", R"({"rms_norm_eps": 1e-5, "rope_parameters": {
        "rope_type": "llama3", "rope_theta": 12000000.0, "factor": 8.0, "low_freq_factor": 1.0,
        "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}})"},
    FamilyDefaults{"arcee", R"({"rms_norm_eps": 1e-5})"},
    FamilyDefaults{"ernie4_5", R"({"tie_word_embeddings": true, "rope_theta": 500000.0,
        "head_dim": 128, "rms_norm_eps": 1e-5})"},
    FamilyDefaults{"minimax_m2", R"({"rope_theta": 5000000.0, "head_dim": 128})"},
    FamilyDefaults{"mellum", R"({"sliding_window": 1024, "head_dim": 128})"},
    FamilyDefaults{"exaone_moe", R"({"sliding_window": 4096, "rms_norm_eps": 1e-5,
        "first_k_dense_replace": 1, "num_shared_experts": 1, "routed_scaling_factor": 2.5})"},
    FamilyDefaults{"glm_moe_dsa", R"({"routed_scaling_factor": 2.5, "rms_norm_eps": 1e-5,
        "first_k_dense_replace": 3, "index_topk": 2048})"},
    FamilyDefaults{"deepseek_v32", R"({"routed_scaling_factor": 2.5, "n_group": 8, "topk_group": 4,
        "first_k_dense_replace": 3, "index_topk": 2048})"},
    FamilyDefaults{"bert", R"({"layer_norm_eps": 1e-12, "hidden_act": "gelu"})"},
    FamilyDefaults{"xlm-roberta", R"({"layer_norm_eps": 1e-12, "hidden_act": "gelu"})"},
    FamilyDefaults{"jina_embeddings_v3", R"({"layer_norm_eps": 1e-5, "hidden_act": "gelu",
        "rope_theta": 20000.0})"},
    FamilyDefaults{"roberta", R"({"layer_norm_eps": 1e-12, "hidden_act": "gelu"})"},
    FamilyDefaults{"smollm3", R"({"tie_word_embeddings": true, "use_sliding_window": false,
        "rope_theta": 2000000.0})"},
    FamilyDefaults{"starcoder2", R"({"tie_word_embeddings": true,
        "hidden_act": "gelu_pytorch_tanh"})"},
    FamilyDefaults{"phi3", R"({"rms_norm_eps": 1e-5})"},
    FamilyDefaults{"glm4", R"({"partial_rotary_factor": 0.5, "head_dim": 128,
        "rms_norm_eps": 1.5625e-7})"},
    FamilyDefaults{"glm4_moe", R"({"partial_rotary_factor": 0.5})"},
    FamilyDefaults{"glm4_moe_lite", R"({"routed_scaling_factor": 1.8})"},
    FamilyDefaults{"deepseek_v3", R"({"routed_scaling_factor": 2.5})"},
    FamilyDefaults{"ernie4_5_moe", R"({"rope_theta": 500000.0})"},
    FamilyDefaults{"gpt_oss", R"({"rope_theta": 150000.0, "rms_norm_eps": 1e-5,
        "sliding_window": 128})"},
    FamilyDefaults{"ministral3", R"({"rms_norm_eps": 1e-5, "rope_parameters": {
        "rope_type": "yarn", "rope_theta": 1000000.0, "factor": 16.0, "beta_fast": 32.0,
        "beta_slow": 1.0, "original_max_position_embeddings": 16384, "mscale": 1.0,
        "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1}})"},
    FamilyDefaults{"stablelm", R"({"partial_rotary_factor": 0.25})"},
    FamilyDefaults{"olmo2", R"({"rms_norm_eps": 1e-5})"},
    FamilyDefaults{"olmo3", R"({"sliding_window": 4096, "rope_theta": 500000.0,
        "rms_norm_eps": 1e-5})"},
    FamilyDefaults{"exaone4", R"({"sliding_window": 4096, "rms_norm_eps": 1e-5})"},
    FamilyDefaults{"hunyuan_v1_dense", R"({"rms_norm_eps": 1e-5})"},
    FamilyDefaults{"bitnet", R"({"tie_word_embeddings": true, "rope_theta": 500000.0,
        "rms_norm_eps": 1e-5})"},
    FamilyDefaults{"falcon", R"({"tie_word_embeddings": true})"},
    FamilyDefaults{"opt", R"({"tie_word_embeddings": true})"},
    FamilyDefaults{"persimmon", R"({"rope_theta": 25000.0, "partial_rotary_factor": 0.5})"},
    FamilyDefaults{"phi", R"({"partial_rotary_factor": 0.5})"},
    FamilyDefaults{"nemotron", R"({"partial_rotary_factor": 0.5})"},
    FamilyDefaults{"granite", R"({"attention_multiplier": 1.0})"},
    FamilyDefaults{"granitemoe", R"({"attention_multiplier": 1.0})"},
    FamilyDefaults{"granitemoeshared", R"({"attention_multiplier": 1.0})"},
};

}  // namespace

Json WithFamilyDefaults(const Json& config, std::string_view model_type) {
  Json out = config;
  for (const FamilyDefaults& family : kDefaults) {
    if (family.model_type != model_type) continue;
    const Json fields = *base::ParseJson(std::string(family.fields));
    for (const auto& [key, value] : fields.as_object()) {
      if (config.FindRaw(key) == nullptr) out.object().emplace_back(key, value);
    }
  }
  return out;
}

}  // namespace thermocline::model
