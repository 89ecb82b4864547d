// Reads the configuration in GGUF's "<architecture>.*" keys.
#include <algorithm>
#include <cmath>

#include "engine/model/gguf/attention.h"
#include "engine/model/gguf/keys.h"
#include "engine/model/gguf/metadata.h"
#include "engine/model/gguf/powerinfer.h"
#include "engine/model/latent_attention.h"

namespace thermocline::model {
namespace {

constexpr double kEpsilonDefault = 1e-5;  // for OPT, whose files omit it

// Reads latent attention. `key` and `value` are the head dimensions of the latent form or, in old
// files, of the plain one.
Status ReadLatent(const Keys& keys, const std::string& prefix, int key, int value,
                  LatentConfig& l) {
  ASSIGN_OR_RETURN(l.kv_lora_rank, keys.Int(prefix + "attention.kv_lora_rank"));
  ASSIGN_OR_RETURN(l.q_lora_rank, keys.Int(prefix + "attention.q_lora_rank", 0));
  ASSIGN_OR_RETURN(l.qk_rope_head_dim, keys.Int(prefix + "rope.dimension_count"));
  ASSIGN_OR_RETURN(const int plain, keys.Int(prefix + "attention.key_length_mla", key));
  ASSIGN_OR_RETURN(l.v_head_dim, keys.Int(prefix + "attention.value_length_mla", value));
  ASSIGN_OR_RETURN(l.yarn_log_multiplier,
                   keys.Double(prefix + "rope.scaling.yarn_log_multiplier", 0.0));
  if (l.kv_lora_rank < 1 || l.qk_rope_head_dim < 1 || plain <= l.qk_rope_head_dim)
    return base::InvalidArgument("keys '", prefix, "attention.kv_lora_rank' ", l.kv_lora_rank,
                                 ", 'rope.dimension_count' ", l.qk_rope_head_dim,
                                 " and 'attention.key_length_mla' ", plain,
                                 " do not make a latent attention");
  l.qk_nope_head_dim = plain - l.qk_rope_head_dim;
  return OkStatus();
}

// Returns the largest of a size that is given per layer, with 0 for layers without the part.
Result<int> Largest(const Keys& keys, const std::string& key, const ModelConfig& c,
                    std::optional<int> absent) {
  const Architecture& a = *c.architecture;
  const bool by_layer = a.recurrent != Mixer::kAttention || a.window_heads || a.window_queries;
  if (!by_layer || !keys.Has(key)) return keys.Int(key, absent);
  ASSIGN_OR_RETURN(const auto sizes,
                   keys.IntsByLayer(key, std::clamp(c.num_hidden_layers, 1, kLayersMax)));
  const int largest = *std::max_element(sizes.begin(), sizes.end());
  for (const int size : sizes)
    if (size != 0 && size != largest && !a.window_heads && !a.window_queries)
      return base::Unimplemented("key '", key, "' differs by layer, which is not supported");
  return largest;
}

Status ReadShapes(const Keys& keys, const std::string& prefix, ModelConfig& c) {
  ASSIGN_OR_RETURN(c.hidden_size, keys.Int(prefix + "embedding_length"));
  ASSIGN_OR_RETURN(c.num_hidden_layers, keys.Int(prefix + "block_count"));
  ASSIGN_OR_RETURN(c.prediction_layers, keys.Int(prefix + "nextn_predict_layers", 0));
  if (c.prediction_layers < 0 || c.prediction_layers >= std::max(1, c.num_hidden_layers))
    return base::InvalidArgument("key '", prefix, "nextn_predict_layers' is ", c.prediction_layers,
                                 " of ", c.num_hidden_layers, " blocks");
  c.num_hidden_layers -= c.prediction_layers;
  ASSIGN_OR_RETURN(c.intermediate_size, Largest(keys, prefix + "feed_forward_length", c, {}));
  ASSIGN_OR_RETURN(c.num_attention_heads, Largest(keys, prefix + "attention.head_count", c, {}));
  ASSIGN_OR_RETURN(c.num_key_value_heads,
                   Largest(keys, prefix + "attention.head_count_kv", c, c.num_attention_heads));
  const int default_dim = c.num_attention_heads > 0 ? c.hidden_size / c.num_attention_heads : 0;
  ASSIGN_OR_RETURN(c.head_dim, keys.Int(prefix + "attention.key_length", default_dim));
  ASSIGN_OR_RETURN(const int value_dim, keys.Int(prefix + "attention.value_length", c.head_dim));
  if (c.architecture->latent) {
    RETURN_IF_ERROR(ReadLatent(keys, prefix, c.head_dim, value_dim, c.latent));
  } else if (value_dim != c.head_dim) {
    return base::Unimplemented("heads whose keys (", c.head_dim, ") and values (", value_dim,
                               ") differ in size are not supported");
  }
  ASSIGN_OR_RETURN(c.max_position_embeddings, keys.Int(prefix + "context_length"));
  constexpr int kGemma2Window = 4096;  // the default of its files
  ASSIGN_OR_RETURN(c.sliding_window, keys.Int(prefix + "attention.sliding_window",
                                              c.architecture->name == "gemma2" ? kGemma2Window
                                              : c.architecture->chunked        ? kLlama4Chunk
                                                                               : 0));
  ASSIGN_OR_RETURN(c.max_window_layers, keys.Int("thermocline.max_window_layers", 0));
  ASSIGN_OR_RETURN(c.pooling_type, keys.Int(prefix + "pooling_type", -1));
  return OkStatus();
}

Result<Gating> ReadGating(const Keys& keys, const std::string& key, Gating absent) {
  ASSIGN_OR_RETURN(const int number, keys.Int(key, 0));
  switch (number) {
    case 0:
      return absent;
    case 1:
      return Gating::kSoftmax;
    case 2:
      return Gating::kSigmoid;
    case 3:
      return Gating::kSoftmaxOfChosen;
    default:
      return base::Unimplemented("key '", key, "' is ", number,
                                 "; supported are 1 (softmax), 2 (sigmoid) and 3 (softmax of the "
                                 "chosen)");
  }
}

Status ReadRouter(const Keys& keys, const std::string& prefix, RouterConfig& router) {
  ASSIGN_OR_RETURN(router.gating, ReadGating(keys, prefix + "expert_gating_func", router.gating));
  if (router.gating == Gating::kSigmoid) router.group_score = GroupScore::kTopTwo;
  ASSIGN_OR_RETURN(router.normalise, keys.Bool(prefix + "expert_weights_norm", router.normalise));
  ASSIGN_OR_RETURN(const double scale, keys.Double(prefix + "expert_weights_scale", 0.0));
  if (scale != 0) router.scale = scale;  // 0: the file gives none
  ASSIGN_OR_RETURN(router.groups, keys.Int(prefix + "expert_group_count", 1));
  ASSIGN_OR_RETURN(router.groups_used, keys.Int(prefix + "expert_group_used_count", router.groups));
  return OkStatus();
}

// The first files of GLM 4.7 Flash use the name deepseek2 and omit that their router is a sigmoid.
// Source: llama.cpp issue 18980.
bool IsGlmFlash(const ModelFile& model, const ModelConfig& c) {
  const TensorInfo* embedding = model.Find("token_embd.weight");
  const int blocks = c.num_hidden_layers + c.prediction_layers;
  return c.architecture->latent && (blocks == 47 || blocks == 48) && embedding != nullptr &&
         embedding->rows == 154880;
}

// Granite's shared network is the only network of a model without experts.
Status ReadOnlyNetwork(const Keys& keys, const std::string& prefix, ModelConfig& c) {
  if (c.architecture->recurrent != Mixer::kMamba2 || c.architecture->one_part) return OkStatus();
  ASSIGN_OR_RETURN(c.intermediate_size,
                   keys.Int(prefix + "expert_shared_feed_forward_length", c.intermediate_size));
  return OkStatus();
}

// A classifier with one label scores pairs of texts, whether the file says so or not.
Status ReadRanking(const ModelFile& model, const Keys& keys, const std::string& prefix,
                   ModelConfig& c) {
  const TensorInfo* output = model.Find("cls.output.weight");
  if (output == nullptr) return OkStatus();
  if (output->rows != 1)
    return base::Unimplemented("a classifier of ", output->rows,
                               " labels is not supported; one with a single label ranks texts");
  c.pooling_type = kPoolingRank;
  // A BERT's classifier is of the first token. Source: llama.cpp.
  const bool mean_if_absent = c.architecture->name == "modern-bert";
  ASSIGN_OR_RETURN(const int pooling, keys.Int(prefix + "classifier.pooling_type",
                                               mean_if_absent ? kPoolingMean : kPoolingFirst));
  c.ranks_by_mean = pooling == kPoolingMean;
  return OkStatus();
}

// Reads the experts. Without a key, the shared expert's size is taken from its tensor.
Status ReadExperts(const ModelFile& model, const Keys& keys, const std::string& prefix,
                   ModelConfig& c) {
  ExpertConfig& e = c.experts;
  ASSIGN_OR_RETURN(e.num_experts, keys.Int(prefix + "expert_count", 0));
  // Files of dense Nemotrons give a number of experts, too.
  if (c.architecture->one_part && !c.architecture->name.ends_with("_moe")) e.num_experts = 0;
  if (!e.any()) return ReadOnlyNetwork(keys, prefix, c);
  e.layers = c.recurrent.networks;
  e.router = c.architecture->router;
  if (IsGlmFlash(model, c)) e.router.gating = Gating::kSigmoid;
  e.shared_gated = c.architecture->shared_gated;
  e.shared_averaged = c.architecture->shared_averaged;
  ASSIGN_OR_RETURN(e.num_experts_per_tok, keys.Int(prefix + "expert_used_count"));
  ASSIGN_OR_RETURN(e.intermediate_size,
                   keys.Int(prefix + "expert_feed_forward_length", c.intermediate_size));
  ASSIGN_OR_RETURN(e.first_layer, keys.Int(prefix + "leading_dense_block_count", 0));
  ASSIGN_OR_RETURN(e.step, keys.Int(prefix + "interleave_moe_layer_step", 1));
  for (const TensorInfo& tensor : model.tensors) {
    if (tensor.name.ends_with(".ffn_up_shexp.weight"))
      e.shared_intermediate_size = static_cast<int>(std::min<std::int64_t>(tensor.rows, INT32_MAX));
  }
  RETURN_IF_ERROR(ReadRouter(keys, prefix, e.router));
  SetDenseSize(c);
  return OkStatus();
}

// llama.cpp's keys: a number, or a list of one for each layer.
Status ReadXielu(const Keys& keys, ModelConfig& c) {
  c.xielu.resize(std::clamp(c.num_hidden_layers, 0, kLayersMax));
  struct Parameter {
    const char* key;
    double XieluConfig::*field;
  };
  for (const auto& [key, field] :
       {Parameter{"xielu.alpha_p", &XieluConfig::alpha_p},
        Parameter{"xielu.alpha_n", &XieluConfig::alpha_n},
        Parameter{"xielu.beta", &XieluConfig::beta}, Parameter{"xielu.eps", &XieluConfig::eps}}) {
    ASSIGN_OR_RETURN(const auto values, keys.DoublesByLayer(key, base::IntSize(c.xielu)));
    for (std::size_t layer = 0; layer < c.xielu.size(); ++layer)
      c.xielu[layer].*field = values[layer];
  }
  return OkStatus();
}

Status ReadActivation(const Keys& keys, bool powerinfer, ModelConfig& c) {
  Activation absent = c.architecture->activation;
  if (powerinfer) {
    ASSIGN_OR_RETURN(absent, PowerInferActivation(*c.architecture));
  }
  // The name was first used for 1bitLLM's files, with SiLU, and then for Microsoft's, whose
  // vocabulary is Llama 3's. Source: llama.cpp issue 26751.
  constexpr int kMicrosoftVocabulary = 128256;
  if (c.architecture->name == "bitnet" && c.vocab_size != kMicrosoftVocabulary)
    absent = Activation::kSilu;
  ASSIGN_OR_RETURN(const std::string name,
                   keys.String("thermocline.activation", std::string(ActivationName(absent))));
  ASSIGN_OR_RETURN(c.hidden_act, ParseActivation(name));
  if (c.hidden_act == Activation::kXielu) RETURN_IF_ERROR(ReadXielu(keys, c));
  ASSIGN_OR_RETURN(c.fatrelu_threshold, keys.Double("thermocline.fatrelu_threshold", 0.0));
  const std::string threshold = "powerinfer.sparse_threshold";
  if (!keys.Has(threshold)) return OkStatus();
  ASSIGN_OR_RETURN(const double value, keys.Double(threshold));
  if (!std::isfinite(static_cast<float>(value)))
    return base::InvalidArgument("key '", threshold, "' is ", value,
                                 "; it must be a finite number");
  c.sparse_threshold = static_cast<float>(value);
  return OkStatus();
}

// The vocabulary's size is the embedding's; learned positions have a separate table.
Status ReadTables(const ModelFile& model, ModelConfig& c) {
  c.tie_word_embeddings = !c.architecture->encoder && model.Find("output.weight") == nullptr;
  const TensorInfo* embedding = model.Find("token_embd.weight");
  if (embedding == nullptr) return base::InvalidArgument("tensor 'token_embd.weight' is missing");
  c.vocab_size = static_cast<int>(std::min<std::int64_t>(embedding->rows, INT32_MAX));
  if (model.vocabulary.kind != VocabularyKind::kNone && model.vocabulary.size() != c.vocab_size) {
    return base::InvalidArgument("the vocabulary has ", model.vocabulary.size(),
                                 " tokens, but tensor 'token_embd.weight' has ", c.vocab_size,
                                 " rows");
  }
  if (!c.learned_positions()) return OkStatus();
  const TensorInfo* positions = model.Find("position_embd.weight");
  if (positions == nullptr)
    return base::InvalidArgument("tensor 'position_embd.weight' is missing");
  c.max_position_embeddings = static_cast<int>(
      std::min<std::int64_t>(positions->rows - c.architecture->position_offset, INT32_MAX));
  return OkStatus();
}

// Rejects files whose metadata selects a variant of the architecture that is not supported.
Status RefuseKeys(const Keys& keys, const std::string& prefix, const Architecture& a) {
  ASSIGN_OR_RETURN(const bool parallel, keys.Bool(prefix + "use_parallel_residual", false));
  ASSIGN_OR_RETURN(const bool causal, keys.Bool(prefix + "attention.causal", true));
  ASSIGN_OR_RETURN(const double clamp, keys.Double(prefix + "attention.clamp_kqv", 0.0));
  const auto refuse = [&](const char* key, const char* value) {
    return base::Unimplemented("key '", prefix, key, "' is ", value, ", which is not supported");
  };
  if (parallel && prefix == "stablelm.") return refuse("use_parallel_residual", "true");
  if (!causal && !a.encoder) return refuse("attention.causal", "false");
  if (clamp > 0) return refuse("attention.clamp_kqv", "not 0");
  return OkStatus();
}

}  // namespace

Result<ModelConfig> ConfigFromMetadata(const ModelFile& model) {
  const Keys keys(model.metadata);
  ModelConfig c;
  ASSIGN_OR_RETURN(const std::string name, keys.String("general.architecture"));
  if (name.empty()) return base::InvalidArgument("key 'general.architecture' is missing");
  if (name == "generic.gpu_index") {
    return base::InvalidArgument(
        "holds PowerInfer's choice of neurons for a GPU, no model; open the model itself");
  }
  ASSIGN_OR_RETURN(const std::string type, keys.String("general.type"));
  if (type == "adapter")
    return base::InvalidArgument(
        "holds a LoRA adapter: give it as --lora (the daemon: model.lora) of the model that it was "
        "made for");
  if (type == "imatrix")
    return base::InvalidArgument(
        "holds an importance matrix, no model: it is for `thermocline "
        "convert --imatrix`");
  ASSIGN_OR_RETURN(c.architecture, FindArchitecture(name));
  const std::string prefix = name + ".";
  const std::string rms_eps = prefix + "attention.layer_norm_rms_epsilon";
  if (keys.Has(rms_eps)) c.architecture = WithNorm(*c.architecture, Norm::kRms);
  RETURN_IF_ERROR(RefuseKeys(keys, prefix, *c.architecture));
  RETURN_IF_ERROR(ReadShapes(keys, prefix, c));
  if (c.architecture->encoder) RETURN_IF_ERROR(ReadRanking(model, keys, prefix, c));
  RETURN_IF_ERROR(ReadGgufRecurrent(keys, model.metadata, prefix, c));
  RETURN_IF_ERROR(ReadExperts(model, keys, prefix, c));
  RETURN_IF_ERROR(ReadGgufScales(keys, prefix, c));
  RETURN_IF_ERROR(ReadGgufAltUp(model, keys, prefix, c));
  RETURN_IF_ERROR(ReadGgufWindows(model.metadata, prefix, c));
  c.plain_head_norm = c.architecture->chunked && HasLlama4HeadNorm(c);
  RETURN_IF_ERROR(ReadGgufQueryHeads(keys, prefix, c));
  RETURN_IF_ERROR(ReadGgufGemma4(model, keys, prefix, c));
  RETURN_IF_ERROR(ReadGgufRope(keys, prefix, c));
  if (c.latent.any()) SetAbsorbed(c);
  if (c.architecture->indexed) {
    ASSIGN_OR_RETURN(const int keys_max, keys.Int(prefix + "attention.indexer.top_k", 0));
    CutToIndexed(keys_max, c);
  }
  const bool rms = c.architecture->norm == Norm::kRms;
  // Nemotron's files store the RMS norm's epsilon under the layer norm's key.
  ASSIGN_OR_RETURN(
      c.norm_eps,
      keys.Double(rms && keys.Has(rms_eps) ? rms_eps : prefix + "attention.layer_norm_epsilon",
                  kEpsilonDefault));
  RETURN_IF_ERROR(ReadTables(model, c));
  RETURN_IF_ERROR(ReadActivation(keys, model.powerinfer, c));
  return c;
}

}  // namespace thermocline::model
