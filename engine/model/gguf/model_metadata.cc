#include "engine/model/gguf/metadata_builder.h"
#include "engine/model/sampling_metadata.h"

namespace thermocline::model {
namespace {

// `scores_scaled`: yarn scales scores instead of rotations.
void AddRope(const RopeConfig& rope, bool scores_scaled, const std::string& prefix,
             MetadataBuilder& out) {
  out.Float(prefix + "rope.freq_base", static_cast<float>(rope.theta));
  if (rope.scaling == RopeScaling::kNone) return;
  if (rope.scaling == RopeScaling::kLong) {
    out.Uint(prefix + "rope.scaling.original_context_length", rope.original_max_position);
    out.Float(prefix + "rope.scaling.attn_factor",
              static_cast<float>(ComputeRopeFrequencies(rope, 0).magnitude));
    return;
  }
  const bool yarn = rope.scaling == RopeScaling::kYarn;
  out.String(prefix + "rope.scaling.type", yarn ? "yarn" : "linear");
  out.Float(prefix + "rope.scaling.factor", static_cast<float>(rope.factor));
  if (!yarn) return;
  out.Uint(prefix + "rope.scaling.original_context_length", rope.original_max_position);
  out.Float(prefix + "rope.scaling.yarn_beta_fast", static_cast<float>(rope.beta_fast));
  out.Float(prefix + "rope.scaling.yarn_beta_slow", static_cast<float>(rope.beta_slow));
  if (rope.attention_factor > 0 && !scores_scaled)
    out.Float(prefix + "rope.scaling.yarn_attn_factor", static_cast<float>(rope.attention_factor));
}

std::uint32_t U32(int value) { return value; }

std::uint32_t GatingId(Gating gating) {
  return gating == Gating::kSoftmax ? 1 : gating == Gating::kSigmoid ? 2 : 3;
}

void AddExperts(const ExpertConfig& e, const std::string& prefix, MetadataBuilder& out) {
  if (!e.any()) return;
  out.Uint(prefix + "expert_count", U32(e.num_experts));
  out.Uint(prefix + "expert_used_count", U32(e.num_experts_per_tok));
  out.Uint(prefix + "expert_feed_forward_length", U32(e.intermediate_size));
  if (e.shared_intermediate_size > 0) {
    out.Uint(prefix + "expert_shared_feed_forward_length", U32(e.shared_intermediate_size));
  }
  // Written as the number of experts of the common size that equals the shared expert's width.
  const int shared = e.shared_intermediate_size, size = e.intermediate_size;
  out.Uint(prefix + "expert_shared_count", U32(shared % size == 0 ? shared / size : 1));
  out.Uint(prefix + "leading_dense_block_count", U32(e.first_layer));
  out.Uint(prefix + "interleave_moe_layer_step", U32(e.step));
  const RouterConfig& router = e.router;
  out.Uint(prefix + "expert_gating_func", GatingId(router.gating));
  out.Bool(prefix + "expert_weights_norm", router.normalise);
  if (router.scale != 1)
    out.Float(prefix + "expert_weights_scale", static_cast<float>(router.scale));
  if (router.groups == 1) return;
  out.Uint(prefix + "expert_group_count", U32(router.groups));
  out.Uint(prefix + "expert_group_used_count", U32(router.groups_used));
}

void AddScales(const ModelConfig& c, const std::string& prefix, MetadataBuilder& out) {
  const auto add = [&](const char* key, double value) {
    out.Float(prefix + key, static_cast<float>(value));
  };
  if (c.attention_scale > 0) add("attention.scale", c.attention_scale);
  // Written even if there is none, because readers assume caps for Gemma 2.
  const bool says = c.architecture->name == "gemma2";
  if (says || c.attention_cap > 0) add("attn_logit_softcapping", c.attention_cap);
  if (says || c.architecture->altup || c.logit_cap > 0) add("final_logit_softcapping", c.logit_cap);
  if (c.temperature_beta > 0 || c.architecture->temperature_unrotated) {
    add("attention.temperature_scale", c.temperature_beta);
    out.Uint(prefix + "attention.temperature_length", U32(c.temperature_period));
  }
  if (!c.architecture->scales) return;
  add("embedding_scale", c.embedding_scale);
  add("residual_scale", c.residual_scale);
  add("logit_scale", c.architecture->logits_times_scale ? c.logit_scale : 1 / c.logit_scale);
}

void AddAltUp(const AltUpConfig& a, const std::string& prefix, MetadataBuilder& out) {
  out.Uint(prefix + "altup.num_inputs", U32(a.streams));
  out.Uint(prefix + "altup.active_idx", 0);
  out.Uint(prefix + "embedding_length_per_layer_input", U32(a.embedding_dim));
  out.Uint(prefix + "attention.shared_kv_layers", U32(a.shared_kv_layers));
  out.Numbers<float>(prefix + "activation_sparsity_scale", 6,
                     std::vector<float>(a.cuts.begin(), a.cuts.end()));
}

void AddLatent(const LatentConfig& l, const std::string& prefix, MetadataBuilder& out) {
  out.Uint(prefix + "attention.kv_lora_rank", U32(l.kv_lora_rank));
  if (l.q_lora_rank > 0) out.Uint(prefix + "attention.q_lora_rank", U32(l.q_lora_rank));
  out.Uint(prefix + "attention.value_length", U32(l.kv_lora_rank));
  out.Uint(prefix + "attention.key_length_mla", U32(l.qk_nope_head_dim + l.qk_rope_head_dim));
  out.Uint(prefix + "attention.value_length_mla", U32(l.v_head_dim));
  if (l.yarn_log_multiplier > 0)
    out.Float(prefix + "rope.scaling.yarn_log_multiplier",
              static_cast<float>(l.yarn_log_multiplier));
}

// Writes the kinds of layers as llama.cpp's files do: Qwen's by a list, others by layers without kv
// heads, and Nemotron's networks by layers that have neurons.
void AddRecurrent(const ModelConfig& c, const std::string& prefix, MetadataBuilder& out) {
  const RecurrentConfig& r = c.recurrent;
  std::vector<int> kv, ffn;
  std::vector<bool> recurrent;
  for (int layer = 0; layer < c.num_hidden_layers; ++layer) {
    kv.push_back(r.of(layer) == Mixer::kAttention ? c.num_key_value_heads : 0);
    const int size = c.experts.InLayer(layer) ? c.experts.intermediate_size : c.intermediate_size;
    ffn.push_back(r.has_network(layer) ? size : 0);
    recurrent.push_back(r.has_state(layer));
  }
  if (r.kind == Mixer::kDeltaNet) {
    out.Uint(prefix + "attention.head_count_kv", U32(c.num_key_value_heads));
    out.Numbers<std::uint8_t>(prefix + "attention.recurrent_layers", 7, recurrent);
  } else {
    out.Numbers<std::int32_t>(prefix + "attention.head_count_kv", 5, kv);
  }
  if (c.architecture->one_part) {
    out.Numbers<std::int32_t>(prefix + "feed_forward_length", 5, ffn);
  } else {
    out.Uint(prefix + "feed_forward_length", U32(c.intermediate_size));
  }
  if (r.kind == Mixer::kShortConv) return out.Uint(prefix + "shortconv.l_cache", U32(r.taps));
  out.Uint(prefix + "ssm.conv_kernel", U32(r.taps));
  out.Uint(prefix + "ssm.group_count", U32(r.key_heads));
  out.Uint(prefix + "ssm.time_step_rank", U32(r.heads));
  out.Uint(prefix + "ssm.state_size", U32(r.key_dim));
  out.Uint(prefix + "ssm.inner_size", U32(r.inner()));
  if (r.kind == Mixer::kMamba2) out.Bool(prefix + "rope.scaling.finetuned", !c.unrotated);
  // llama.cpp requires these for Qwen 3.5; for text all sections have the same position.
  if (r.tiled)
    out.Numbers<std::int32_t>(prefix + "rope.dimension_sections", 5,
                              std::vector<int>{c.rope.dim / 2, 0, 0, 0});
}

// Writes the sizes that differ by layer.
void AddGemma4(const ModelConfig& c, const std::string& prefix, MetadataBuilder& out) {
  std::vector<int> kv, ffn;
  std::vector<bool> windows;
  for (int layer = 0; layer < c.num_hidden_layers; ++layer) {
    kv.push_back(c.HeadsOf(layer).kv_heads);
    ffn.push_back(c.NetworkSizeOf(layer));
    windows.push_back(c.WindowOf(layer) > 0);
  }
  out.Numbers<std::int32_t>(prefix + "attention.head_count_kv", 5, kv);
  out.Numbers<std::int32_t>(prefix + "feed_forward_length", 5, ffn);
  out.Numbers<std::uint8_t>(prefix + "attention.sliding_window_pattern", 7, windows);
  out.Uint(prefix + "attention.key_length_swa", U32(c.window_head_dim));
  out.Uint(prefix + "attention.value_length_swa", U32(c.window_head_dim));
  out.Uint(prefix + "rope.dimension_count_swa", U32(c.window_rope.dim));
  out.Uint(prefix + "attention.shared_kv_layers", U32(c.altup.shared_kv_layers));
  out.Uint(prefix + "embedding_length_per_layer_input", U32(c.altup.embedding_dim));
}

// llama.cpp's keys, which have no prefix.
void AddXielu(const ModelConfig& c, MetadataBuilder& out) {
  if (c.xielu.empty()) return;
  const auto add = [&](const char* key, double XieluConfig::*field) {
    std::vector<float> values;
    values.reserve(c.xielu.size());
    for (const XieluConfig& layer : c.xielu) values.push_back(static_cast<float>(layer.*field));
    out.Numbers<float>(key, 6, values);
  };
  add("xielu.alpha_p", &XieluConfig::alpha_p);
  add("xielu.alpha_n", &XieluConfig::alpha_n);
  add("xielu.beta", &XieluConfig::beta);
  add("xielu.eps", &XieluConfig::eps);
}

void AddConfig(const ModelConfig& c, MetadataBuilder& out) {
  const std::string prefix = std::string(c.architecture->name) + ".";
  out.Uint(prefix + "context_length", U32(c.max_position_embeddings));
  out.Uint(prefix + "embedding_length", U32(c.hidden_size));
  if (c.architecture->encoder) out.Bool(prefix + "attention.causal", false);
  if (c.pooling_type >= 0) out.Uint(prefix + "pooling_type", U32(c.pooling_type));
  if (c.ranks())
    out.Uint(prefix + "classifier.pooling_type", c.ranks_by_mean ? kPoolingMean : kPoolingFirst);
  out.Uint(prefix + "block_count", U32(c.num_hidden_layers));
  const bool recurrent = c.recurrent.any(), uneven = c.architecture->window_heads;
  if (!recurrent && !uneven) out.Uint(prefix + "feed_forward_length", U32(c.intermediate_size));
  if (c.window_query_heads > 0) {
    std::vector<int> heads;
    heads.reserve(c.num_hidden_layers);
    for (int layer = 0; layer < c.num_hidden_layers; ++layer)
      heads.push_back(c.HeadsOf(layer).heads);
    out.Numbers<std::int32_t>(prefix + "attention.head_count", 5, heads);
  } else {
    out.Uint(prefix + "attention.head_count", U32(c.num_attention_heads));
  }
  if (recurrent) {
    AddRecurrent(c, prefix, out);
  } else if (uneven) {
    AddGemma4(c, prefix, out);
  } else {
    out.Uint(prefix + "attention.head_count_kv", U32(c.num_key_value_heads));
  }
  out.Uint(prefix + "attention.key_length", U32(c.head_dim));
  if (c.latent.any()) AddLatent(c.latent, prefix, out);
  if (c.altup.any()) AddAltUp(c.altup, prefix, out);
  if (!c.latent.any()) out.Uint(prefix + "attention.value_length", U32(c.head_dim));
  if (c.rotary()) out.Uint(prefix + "rope.dimension_count", U32(c.rope.dim));
  out.Uint(prefix + "vocab_size", U32(c.vocab_size));
  if (c.sliding_window == 0 && c.architecture->name == "gemma2")
    out.Uint(prefix + "attention.sliding_window", 0);
  if (c.sliding_window > 0) {
    out.Uint(prefix + "attention.sliding_window", U32(c.sliding_window));
    out.Uint("thermocline.max_window_layers", U32(c.max_window_layers));
    if (c.window_period > 0 && !uneven)
      out.Uint(prefix + "attention.sliding_window_pattern", U32(c.window_period));
    if (c.HasWindowRope())
      out.Float(prefix + "rope.freq_base_swa", static_cast<float>(c.window_rope.theta));
    if (c.HasWindowRope() && !uneven && c.window_rope.dim != c.rope.dim)
      out.Uint(prefix + "rope.dimension_count_swa", U32(c.window_rope.dim));
  }
  if (c.rotary()) AddRope(c.rope, c.latent.yarn_log_multiplier > 0, prefix, out);
  AddExperts(c.experts, prefix, out);
  AddScales(c, prefix, out);
  const bool rms = c.architecture->norm == Norm::kRms;
  out.Float(prefix + (rms ? "attention.layer_norm_rms_epsilon" : "attention.layer_norm_epsilon"),
            static_cast<float>(c.norm_eps));
  out.String("thermocline.activation", std::string(ActivationName(c.hidden_act)));
  if (c.hidden_act == Activation::kFatRelu)
    out.Float("thermocline.fatrelu_threshold", static_cast<float>(c.fatrelu_threshold));
  AddXielu(c, out);
  if (c.sparse_threshold.has_value()) out.Float("powerinfer.sparse_threshold", *c.sparse_threshold);
}

// Writes the parts of a tokenizer.json for which GGUF has no keys.
void AddOwnKeys(const Vocabulary& v, MetadataBuilder& out) {
  if (v.prefix_space) out.Bool("thermocline.tokenizer.prefix_space", true);
  if (v.ignore_merges.has_value())
    out.Bool("thermocline.tokenizer.ignore_merges", *v.ignore_merges);
  std::vector<std::string> names;
  for (const Normalization form : v.normalizers) names.emplace_back(NormalizationName(form));
  if (!names.empty()) out.Strings("thermocline.tokenizer.normalizers", names);
  std::vector<int> edges;
  for (const auto& [id, edge] : v.edges) {
    edges.push_back(id);
    edges.push_back((edge.left_strip ? 1 : 0) + (edge.right_strip ? 2 : 0) +
                    (edge.single_word ? 4 : 0));
  }
  if (!edges.empty()) out.Numbers<std::int32_t>("thermocline.tokenizer.token_edges", 5, edges);
}

void AddVocabulary(const Vocabulary& v, MetadataBuilder& out) {
  if (v.kind == VocabularyKind::kNone) return;
  const char* kind = v.kind == VocabularyKind::kSentencePiece  ? "llama"
                     : v.kind == VocabularyKind::kByteLevelBpe ? "gpt2"
                     : v.kind == VocabularyKind::kWordPiece    ? "bert"
                     : v.kind == VocabularyKind::kUnigram      ? "t5"
                                                               : "gemma4";
  out.String("tokenizer.ggml.model", kind);
  out.String("tokenizer.ggml.pre", v.pre_tokenizer.empty() ? "default" : v.pre_tokenizer);
  out.Strings("tokenizer.ggml.tokens", v.tokens);
  if (!v.scores.empty()) out.Numbers<float>("tokenizer.ggml.scores", 6, v.scores);
  out.Numbers<std::int32_t>("tokenizer.ggml.token_type", 5, v.types);
  if (!v.charsmap.empty())
    out.Numbers<std::uint8_t>("tokenizer.ggml.precompiled_charsmap", 0, v.charsmap);
  if (!v.merges.empty()) out.Strings("tokenizer.ggml.merges", v.merges);
  const auto id = [&](const char* name, int value) {
    if (value >= 0) out.Uint(StrCat("tokenizer.ggml.", name, "_token_id"), value);
  };
  id("bos", v.bos);
  id("eos", v.eos);
  id("eot", v.eot);
  if (v.kind == VocabularyKind::kWordPiece) {
    id("cls", v.bos);
    id("seperator", v.eos);  // as llama.cpp spells it
  }
  id("unknown", v.unk);
  id("padding", v.pad);
  out.Bool("tokenizer.ggml.add_bos_token", v.add_bos);
  if (v.add_eos) out.Bool("tokenizer.ggml.add_eos_token", true);
  out.Bool("tokenizer.ggml.add_space_prefix", v.add_space_prefix);
  out.Bool("tokenizer.ggml.remove_extra_whitespaces", v.remove_extra_whitespaces);
  if (!v.stop_ids.empty()) out.Numbers<std::int32_t>("thermocline.stop_token_ids", 5, v.stop_ids);
  if (!v.chat_template.empty()) out.String("tokenizer.chat_template", v.chat_template);
  if (!v.tool_template.empty()) {
    out.Strings("tokenizer.chat_templates", {"tool_use"});
    out.String("tokenizer.chat_template.tool_use", v.tool_template);
  }
  AddOwnKeys(v, out);
}

void AddSampling(const SamplingDefaults& sampling, MetadataBuilder& metadata) {
  for (const auto& [key, value] : SamplingMetadata(sampling)) {
    if (value.is_int()) {
      metadata.Uint(key, static_cast<std::uint32_t>(value.as_int()));
    } else {
      metadata.Float(key, static_cast<float>(value.as_double()));
    }
  }
}

}  // namespace

void AddModelMetadata(const ModelFile& model, MetadataBuilder& out) {
  AddConfig(model.config, out);
  if (const TensorInfo* types = model.Find("token_types.weight"); types != nullptr)
    out.Uint("tokenizer.ggml.token_type_count", static_cast<std::uint32_t>(types->rows));
  AddVocabulary(model.vocabulary, out);
  AddSampling(model.sampling, out);
}

}  // namespace thermocline::model
