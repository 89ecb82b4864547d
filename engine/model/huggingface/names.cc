#include "engine/model/huggingface/names.h"

#include <array>
#include <optional>
#include <string_view>

#include "engine/base/strings.h"

namespace thermocline::model {
namespace {

// Maps modules to their GGUF names. One table for all families: if two use one name for different
// things, the layer prefix distinguishes them.
struct ModuleName {
  std::string_view hugging_face, gguf;
};
constexpr std::array kGlobalModules = {
    ModuleName{"model.embed_tokens", "token_embd"},
    ModuleName{"model.norm", "output_norm"},
    ModuleName{"lm_head", "output"},
    ModuleName{"model.final_layernorm", "output_norm"},       // phi
    ModuleName{"transformer.word_embeddings", "token_embd"},  // falcon
    ModuleName{"transformer.ln_f", "output_norm"},            // falcon
    ModuleName{"model.tok_embeddings", "token_embd"},         // internlm2
    ModuleName{"output", "output"},
    ModuleName{"model.decoder.embed_tokens", "token_embd"},  // opt
    ModuleName{"model.decoder.embed_positions", "position_embd"},
    ModuleName{"model.decoder.final_layer_norm", "output_norm"},
    ModuleName{"model.embed_tokens_per_layer", "per_layer_token_embd"},  // gemma3n
    ModuleName{"model.per_layer_model_projection", "per_layer_model_proj"},
    ModuleName{"model.per_layer_projection_norm", "per_layer_proj_norm"},
    ModuleName{"model.embedding_norm", "token_embd_norm"},   // lfm2: follows the last layer
    ModuleName{"embeddings.word_embeddings", "token_embd"},  // bert
    ModuleName{"embeddings.position_embeddings", "position_embd"},
    ModuleName{"embeddings.token_type_embeddings", "token_types"},
    ModuleName{"embeddings.LayerNorm", "token_embd_norm"},
    ModuleName{"emb_ln", "token_embd_norm"},                      // jina v3
    ModuleName{"model.embeddings.tok_embeddings", "token_embd"},  // modernbert
    ModuleName{"model.embeddings.norm", "token_embd_norm"},
    ModuleName{"model.final_norm", "output_norm"},
    ModuleName{"2_Dense.linear", "dense_2"},  // sentence-transformers
    ModuleName{"3_Dense.linear", "dense_3"},
    ModuleName{"pooler.dense", "cls"},  // of those that rank
    ModuleName{"head.dense", "cls"},    // modernbert
    ModuleName{"head.norm", "cls.norm"},
    ModuleName{"classifier", "cls.output"},
    ModuleName{"classifier.dense", "cls"},  // xlm-roberta
    ModuleName{"classifier.out_proj", "cls.output"},
    ModuleName{"backbone.embeddings", "token_embd"},  // nemotron_h
    ModuleName{"backbone.norm_f", "output_norm"},
    ModuleName{"model.embeddings", "token_embd"},
    ModuleName{"model.norm_f", "output_norm"},
};
constexpr std::array kLayerModules = {
    ModuleName{"input_layernorm", "attn_norm"},
    ModuleName{"post_attention_layernorm", "ffn_norm"},
    ModuleName{"pre_feedforward_layernorm", "ffn_norm"},  // gemma
    ModuleName{"post_feedforward_layernorm", "post_ffw_norm"},
    ModuleName{"post_self_attn_layernorm", "post_attention_norm"},  // glm4
    ModuleName{"post_mlp_layernorm", "post_ffw_norm"},
    ModuleName{"pre_mlp_layernorm", "ffn_norm"},  // afmoe
    ModuleName{"mlp.router.gate", "ffn_gate_inp"},
    ModuleName{"mlp.expert_bias", "exp_probs_b"},
    ModuleName{"self_attn.gate_proj", "attn_gate"},                    // also muse-glimmer
    ModuleName{"self_attn.g_proj", "attn_gate"},                       // laguna
    ModuleName{"mlp.experts.e_score_correction_bias", "exp_probs_b"},  // laguna
    ModuleName{"attention_layernorm", "attn_norm"},                    // apertus
    ModuleName{"feedforward_layernorm", "ffn_norm"},
    ModuleName{"mlp.gate_up_proj", "ffn_gate_up"},
    ModuleName{"self_attn.attn_sub_norm", "attn_sub_norm"},  // bitnet
    ModuleName{"mlp.ffn_sub_norm", "ffn_sub_norm"},
    ModuleName{"self_attn.qkv_proj", "attn_qkv_rows"},       // phi3
    ModuleName{"self_attn.query_layernorm", "attn_q_norm"},  // hunyuan
    ModuleName{"self_attn.key_layernorm", "attn_k_norm"},
    ModuleName{"mlp.c_fc", "ffn_up"},  // starcoder2
    ModuleName{"mlp.c_proj", "ffn_down"},
    ModuleName{"per_layer_input_gate", "inp_gate"},  // gemma3n
    ModuleName{"per_layer_projection", "proj"},
    ModuleName{"post_per_layer_input_norm", "post_norm"},
    ModuleName{"layer_scalar", "layer_output_scale"},  // gemma4
    ModuleName{"post_feedforward_layernorm_1", "post_ffw_norm_1"},
    ModuleName{"pre_feedforward_layernorm_2", "pre_ffw_norm_2"},
    ModuleName{"post_feedforward_layernorm_2", "post_ffw_norm_2"},
    ModuleName{"router.proj", "ffn_gate_inp"},
    ModuleName{"router.scale", "ffn_gate_inp"},
    ModuleName{"router.per_expert_scale", "ffn_down_exps"},
    ModuleName{"experts.gate_up_proj", "ffn_gate_up_exps"},
    ModuleName{"experts.down_proj", "ffn_down_exps"},
    ModuleName{"altup.correction_coefs", "altup_correct_coef"},
    ModuleName{"altup.correct_output_scale", "altup_correct_scale"},
    ModuleName{"altup.prediction_coefs", "altup_predict_coef"},
    ModuleName{"altup.modality_router", "altup_router"},
    ModuleName{"altup.router_norm", "altup_router_norm"},
    ModuleName{"laurel.linear_left", "laurel_l"},
    ModuleName{"laurel.linear_right", "laurel_r"},
    ModuleName{"laurel.post_laurel_norm", "laurel_post_norm"},
    ModuleName{"attention.wqkv", "attn_qkv"},  // internlm2
    ModuleName{"attention.wo", "attn_output"},
    ModuleName{"attention_norm", "attn_norm"},
    ModuleName{"ffn_norm", "ffn_norm"},
    ModuleName{"feed_forward.w1", "ffn_gate"},
    ModuleName{"feed_forward.w3", "ffn_up"},
    ModuleName{"feed_forward.w2", "ffn_down"},
    ModuleName{"self_attn.q_proj", "attn_q"},
    ModuleName{"self_attn.k_proj", "attn_k"},
    ModuleName{"self_attn.v_proj", "attn_v"},
    ModuleName{"self_attn.o_proj", "attn_output"},
    ModuleName{"self_attn.q_a_proj", "attn_q_a"},  // latent attention
    ModuleName{"self_attn.q_a_layernorm", "attn_q_a_norm"},
    ModuleName{"self_attn.q_b_proj", "attn_q_b"},
    ModuleName{"self_attn.kv_a_proj_with_mqa", "attn_kv_a_mqa"},
    ModuleName{"self_attn.kv_a_layernorm", "attn_kv_a_norm"},
    ModuleName{"self_attn.kv_b_proj", "attn_kv_b"},
    ModuleName{"self_attn.query_key_value", "attn_qkv"},  // persimmon
    ModuleName{"self_attn.q_layernorm", "attn_q_norm"},
    ModuleName{"self_attn.k_layernorm", "attn_k_norm"},
    ModuleName{"self_attn.q_norm", "attn_q_norm"},
    ModuleName{"self_attn.k_norm", "attn_k_norm"},
    ModuleName{"mlp.gate_proj", "ffn_gate"},
    ModuleName{"mlp.up_proj", "ffn_up"},
    ModuleName{"mlp.down_proj", "ffn_down"},
    ModuleName{"self_attn.dense", "attn_output"},  // phi
    ModuleName{"mlp.fc1", "ffn_up"},
    ModuleName{"mlp.fc2", "ffn_down"},
    ModuleName{"ln_mlp", "attn_norm"},  // falcon with two norms
    ModuleName{"ln_attn", "attn_norm_2"},
    ModuleName{"self_attention.query_key_value", "attn_qkv"},
    ModuleName{"self_attention.dense", "attn_output"},
    ModuleName{"mlp.dense_h_to_4h", "ffn_up"},
    ModuleName{"mlp.dense_4h_to_h", "ffn_down"},
    ModuleName{"self_attn.out_proj", "attn_output"},  // opt
    ModuleName{"self_attn_layer_norm", "attn_norm"},
    ModuleName{"fc1", "ffn_up"},
    ModuleName{"fc2", "ffn_down"},
    ModuleName{"final_layer_norm", "ffn_norm"},
    // Mixtures of experts, without the expert's number.
    ModuleName{"mlp.gate", "ffn_gate_inp"},
    ModuleName{"mlp.experts.gate_proj", "ffn_gate_exps"},
    ModuleName{"mlp.experts.up_proj", "ffn_up_exps"},
    ModuleName{"mlp.experts.down_proj", "ffn_down_exps"},
    ModuleName{"mlp.experts.gate_up_proj", "ffn_gate_up_exps"},
    ModuleName{"mlp.shared_expert.gate_proj", "ffn_gate_shexp"},
    ModuleName{"mlp.shared_expert.up_proj", "ffn_up_shexp"},
    ModuleName{"mlp.shared_expert.down_proj", "ffn_down_shexp"},
    ModuleName{"mlp.shared_expert_gate", "ffn_gate_inp_shexp"},
    ModuleName{"mlp.shared_experts.gate_proj", "ffn_gate_shexp"},
    ModuleName{"mlp.shared_experts.up_proj", "ffn_up_shexp"},
    ModuleName{"mlp.shared_experts.down_proj", "ffn_down_shexp"},
    ModuleName{"mlp.gate.e_score_correction_bias", "exp_probs_b"},
    ModuleName{"mlp.moe_statics.e_score_correction_bias", "exp_probs_b"},   // ernie
    ModuleName{"mlp.e_score_correction_bias", "exp_probs_b"},               // exaone
    ModuleName{"block_sparse_moe.e_score_correction_bias", "exp_probs_b"},  // minimax
    ModuleName{"block_sparse_moe.gate", "ffn_gate_inp"},                    // mixtral
    ModuleName{"block_sparse_moe.experts.w1", "ffn_gate_exps"},
    ModuleName{"block_sparse_moe.experts.w3", "ffn_up_exps"},
    ModuleName{"block_sparse_moe.experts.w2", "ffn_down_exps"},
    ModuleName{"block_sparse_moe.primary_router", "ffn_gate_inp"},  // smallthinker
    ModuleName{"block_sparse_moe.experts.gate", "ffn_gate_exps"},
    ModuleName{"block_sparse_moe.experts.up", "ffn_up_exps"},
    ModuleName{"block_sparse_moe.experts.down", "ffn_down_exps"},
    ModuleName{"mlp.router", "ffn_gate_inp"},  // gpt-oss
    ModuleName{"self_attn.sinks", "attn_sinks"},
    ModuleName{"block_sparse_moe.router.layer", "ffn_gate_inp"},  // granite
    ModuleName{"block_sparse_moe.input_linear", "ffn_gate_up_exps"},
    ModuleName{"block_sparse_moe.output_linear", "ffn_down_exps"},
    ModuleName{"shared_mlp.input_linear", "ffn_gate_up_shexp"},
    ModuleName{"shared_mlp.output_linear", "ffn_down_shexp"},
    ModuleName{"attn.Wqkv", "attn_qkv_rows"},  // modernbert
    ModuleName{"attn.Wo", "attn_output"},
    ModuleName{"mlp_norm", "ffn_norm"},
    ModuleName{"attn_norm", "attn_norm"},
    ModuleName{"mlp.Wi", "ffn_gate_up"},
    ModuleName{"mlp.Wo", "ffn_down"},
    ModuleName{"attention.self.query", "attn_q"},  // bert
    ModuleName{"attention.self.key", "attn_k"},
    ModuleName{"attention.self.value", "attn_v"},
    ModuleName{"attention.output.dense", "attn_output"},
    ModuleName{"attention.output.LayerNorm", "attn_output_norm"},
    ModuleName{"intermediate.dense", "ffn_up"},
    ModuleName{"output.dense", "ffn_down"},
    ModuleName{"output.LayerNorm", "layer_output_norm"},
    ModuleName{"mixer.Wqkv", "attn_qkv_rows"},  // jina v3
    ModuleName{"norm1", "attn_output_norm"},
    ModuleName{"norm2", "layer_output_norm"},
    ModuleName{"mlp.gated_layers", "ffn_gate_up"},  // jina v2
    ModuleName{"mlp.wo", "ffn_down"},
    ModuleName{"mlp.layernorm", "layer_output_norm"},
    // Recurrent layers.
    ModuleName{"operator_norm", "attn_norm"},  // lfm2
    ModuleName{"conv.in_proj", "shortconv.in_proj"},
    ModuleName{"conv.conv", "shortconv.conv"},
    ModuleName{"conv.out_proj", "shortconv.out_proj"},
    ModuleName{"feed_forward.router", "ffn_gate_inp"},  // llama4
    ModuleName{"feed_forward.gate_proj", "ffn_gate"},
    ModuleName{"feed_forward.up_proj", "ffn_up"},
    ModuleName{"feed_forward.down_proj", "ffn_down"},
    ModuleName{"feed_forward.shared_expert.gate_proj", "ffn_gate_shexp"},
    ModuleName{"feed_forward.shared_expert.up_proj", "ffn_up_shexp"},
    ModuleName{"feed_forward.shared_expert.down_proj", "ffn_down_shexp"},
    ModuleName{"feed_forward.gate", "ffn_gate_inp"},
    ModuleName{"feed_forward.expert_bias", "exp_probs_b"},
    ModuleName{"feed_forward.experts.w1", "ffn_gate_exps"},
    ModuleName{"feed_forward.experts.w3", "ffn_up_exps"},
    ModuleName{"feed_forward.experts.w2", "ffn_down_exps"},
    ModuleName{"feed_forward.experts.gate_up_proj", "ffn_gate_up_exps"},
    ModuleName{"feed_forward.experts.down_proj", "ffn_down_exps"},
    ModuleName{"linear_attn.in_proj_qkv", "attn_qkv"},  // qwen3.5
    ModuleName{"linear_attn.in_proj_z", "attn_gate"},
    ModuleName{"linear_attn.in_proj_a", "ssm_alpha"},
    ModuleName{"linear_attn.in_proj_b", "ssm_beta"},
    ModuleName{"linear_attn.in_proj_qkvz", "ssm_in"},  // qwen3-next
    ModuleName{"linear_attn.in_proj_ba", "ssm_ba"},
    ModuleName{"linear_attn.conv1d", "ssm_conv1d"},
    ModuleName{"linear_attn.A_log", "ssm_a"},
    ModuleName{"linear_attn.dt_bias", "ssm_dt.bias"},
    ModuleName{"linear_attn.norm", "ssm_norm"},
    ModuleName{"linear_attn.out_proj", "ssm_out"},
    ModuleName{"mamba.in_proj", "ssm_in"},  // granite
    ModuleName{"mamba.conv1d", "ssm_conv1d"},
    ModuleName{"mamba.A_log", "ssm_a"},
    ModuleName{"mamba.D", "ssm_d"},
    ModuleName{"mamba.dt_bias", "ssm_dt.bias"},
    ModuleName{"mamba.norm", "ssm_norm"},
    ModuleName{"mamba.out_proj", "ssm_out"},
    ModuleName{"norm", "attn_norm"},  // nemotron_h
    ModuleName{"mixer.in_proj", "ssm_in"},
    ModuleName{"mixer.conv1d", "ssm_conv1d"},
    ModuleName{"mixer.A_log", "ssm_a"},
    ModuleName{"mixer.D", "ssm_d"},
    ModuleName{"mixer.dt_bias", "ssm_dt.bias"},
    ModuleName{"mixer.norm", "ssm_norm"},
    ModuleName{"mixer.out_proj", "ssm_out"},  // of jina v3: attention's
    ModuleName{"mixer.q_proj", "attn_q"},
    ModuleName{"mixer.k_proj", "attn_k"},
    ModuleName{"mixer.v_proj", "attn_v"},
    ModuleName{"mixer.o_proj", "attn_output"},
    ModuleName{"mixer.up_proj", "ffn_up"},
    ModuleName{"mixer.down_proj", "ffn_down"},
    ModuleName{"mixer.gate", "ffn_gate_inp"},
    ModuleName{"mixer.gate.e_score_correction_bias", "exp_probs_b"},
    ModuleName{"mixer.experts.up_proj", "ffn_up_exps"},
    ModuleName{"mixer.experts.down_proj", "ffn_down_exps"},
    ModuleName{"mixer.shared_experts.up_proj", "ffn_up_shexp"},
    ModuleName{"mixer.shared_experts.down_proj", "ffn_down_shexp"},
    ModuleName{"mixer.fc1_latent_proj", "ffn_latent_down"},
    ModuleName{"mixer.fc2_latent_proj", "ffn_latent_up"},
};
constexpr std::array<std::string_view, 6> kLayerPrefixes = {
    "model.layers.",    "transformer.h.", "model.decoder.layers.",
    "backbone.layers.", "encoder.layer.", "encoder.layers."};

// True for the parts of encoders behind their layers, which are for other tasks than vectors.
bool IsOfAnotherTask(std::string_view name, bool ranks) {
  if (!ranks && name.starts_with("head.")) return true;
  for (const std::string_view begin : {"cls.", "lm_head.", "embeddings.position_ids", "decoder."})
    if (name.starts_with(begin)) return true;
  return false;
}

template <std::size_t n>
std::string_view Lookup(const std::array<ModuleName, n>& table, std::string_view module) {
  for (const ModuleName& name : table) {
    if (name.hugging_face == module) return name.gguf;
  }
  return {};
}

// A module's name without the expert's number in it.
struct ExpertModule {
  std::string module;
  int expert = -1;
};
ExpertModule TakeExpert(std::string_view module) {
  constexpr std::string_view kExperts = ".experts.";
  const std::size_t at = module.find(kExperts);
  if (at == std::string_view::npos) return {std::string(module)};
  const std::string_view rest = module.substr(at + kExperts.size());
  const std::size_t end = std::min(rest.find('.'), rest.size());
  const auto expert = base::ParseNumber<int>(rest.substr(0, end));
  if (!expert.has_value() || end == rest.size()) return {std::string(module)};
  return {StrCat(module.substr(0, at + kExperts.size()), rest.substr(end + 1)), *expert};
}

// Returns the suffix of parameters that have no module of their own.
std::string SuffixOf(std::string_view name) {
  if (name.ends_with(".e_score_correction_bias") || name.ends_with(".expert_bias")) return ".bias";
  if (name.ends_with(".router.scale") || name.ends_with(".per_expert_scale")) return ".scale";
  bool alone = false;
  for (const std::string_view end : {"experts.gate_up_proj", "experts.down_proj", "self_attn.sinks",
                                     "altup.correct_output_scale", ".layer_scalar"})
    alone = alone || name.ends_with(end);
  return alone ? ".weight" : "";
}

// Returns the name of the matrices of AltUp's streams, one for each but the first. Empty: another
// tensor.
GgufName StreamMatrix(std::string_view name, std::string_view suffix) {
  for (const auto& [prefix, gguf] :
       {std::pair<std::string_view, const char*>{"model.altup_projections.", "altup_proj"},
        {"model.altup_unembed_projections.", "altup_unembd_proj"}}) {
    if (!name.starts_with(prefix)) continue;
    const auto stream = base::ParseNumber<int>(name.substr(prefix.size()));
    if (stream.has_value() && *stream >= 0) return {StrCat(gguf, suffix), *stream};
  }
  return {};
}

// If `name` ends with a suffix that gpt-oss uses for experts ("_bias", "_blocks", "_scales"),
// removes it and returns the GGUF suffix that replaces it; otherwise returns "".
std::string TakeSuffix(std::string& name) {
  for (const auto& [stored, gguf] :
       {std::pair{"_bias", ".bias"}, {"_blocks", ".blocks"}, {"_scales", ".scales"}}) {
    const std::size_t stem = name.size() - std::min(name.size(), std::string_view(stored).size());
    if (name.find("experts.") == std::string::npos || name.find("proj_") == std::string::npos ||
        name.substr(stem) != stored)
      continue;
    name.resize(stem);
    return gguf;
  }
  return "";
}

}  // namespace

bool IsOfAnotherSense(std::string_view name) {
  if (name.starts_with("model.")) name.remove_prefix(std::string_view("model.").size());
  for (const std::string_view part :
       {"vision_tower.", "vision_model.", "multi_modal_projector.", "audio_tower.",
        "vision_adapter.", "vision_projection.", "embed_vision.", "embed_audio.", "visual."}) {
    if (name.starts_with(part)) return true;
  }
  return false;
}

Result<GgufName> GgufNameOf(std::string name, const Architecture& architecture, bool ranks) {
  // Tensors of mtp are blocks for drafting (multi-token prediction).
  if (name.ends_with("rotary_emb.inv_freq") || name.starts_with("mtp.")) return GgufName{};
  if (architecture.indexed && name.find(".self_attn.indexer.") != std::string::npos)
    return GgufName{};
  if (architecture.encoder) {
    for (const std::string_view prefix : {"bert.", "roberta."})
      if (name.starts_with(prefix)) name.erase(0, prefix.size());
    if (!ranks && name.starts_with("pooler.")) return GgufName{};
    if (IsOfAnotherTask(name, ranks)) return GgufName{};
    // Without a head, a model's own names have no prefix.
    for (const std::string_view begin : {"layers.", "embed_tokens.", "norm.", "embeddings.norm.",
                                         "embeddings.tok_embeddings.", "final_norm."})
      if (name.starts_with(begin)) name = StrCat("model.", name);
  }
  if (name.starts_with("decoder.")) name = "model." + name;  // OPT without its head
  // In multimodal models, these prefixes mark the text part.
  if (name.starts_with("language_model."))
    name = name.substr(std::string_view("language_model.").size());
  if (name.starts_with("model.language_model."))
    name.erase(6, std::string_view("language_model.").size());
  std::string suffix = TakeSuffix(name);
  if (suffix.empty()) suffix = SuffixOf(name);
  // These names are complete in GGUF, without a suffix.
  const bool whole = name.ends_with(".A_log") || name.ends_with(".dt_bias") || name.ends_with(".D");
  if (suffix.empty() && !whole) {
    const std::size_t dot = std::min(name.rfind('.'), name.size());
    suffix = name.substr(dot);
    if (suffix != ".weight" && suffix != ".bias" && suffix != ".weight_scale")
      return base::Unimplemented("tensor '", name, "' is neither a weight nor a bias");
    name.resize(dot);
  }
  if (const auto found = Lookup(kGlobalModules, name); !found.empty())
    return GgufName{StrCat(found, suffix)};
  if (const GgufName stream = StreamMatrix(name, suffix); !stream.name.empty()) return stream;
  for (const std::string_view prefix : kLayerPrefixes) {
    if (!name.starts_with(prefix)) continue;
    const std::string_view rest = std::string_view(name).substr(prefix.size());
    const std::size_t end = std::min(rest.find('.'), rest.size());
    const auto layer = base::ParseNumber<int>(rest.substr(0, end));
    const ExpertModule part = TakeExpert(rest.substr(std::min(end + 1, rest.size())));
    auto found = Lookup(kLayerModules, part.module);
    if (architecture.hf_norm_after_attention && part.module == "post_attention_layernorm")
      found = "post_attention_norm";
    if (architecture.encoder && found == "ssm_out") found = "attn_output";
    if (found == "ffn_norm") found = architecture.ffn_norm;
    if (layer.has_value() && !found.empty())
      return GgufName{StrCat("blk.", *layer, ".", found, suffix), part.expert};
  }
  return base::Unimplemented("tensor '", name, suffix, "' belongs to no supported model");
}

}  // namespace thermocline::model
