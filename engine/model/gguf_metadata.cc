#include "engine/model/gguf_metadata.h"

#include <array>

namespace thermocline::model {
namespace {

// Typed look-ups with one style of message.
class Keys {
 public:
  explicit Keys(const Json& metadata) : metadata_(metadata) {}

  bool Has(const std::string& key) const { return metadata_.Find(key) != nullptr; }

  Result<int> Int(const std::string& key, std::optional<int> absent = {}) const {
    const Json* value = metadata_.Find(key);
    if (value == nullptr && absent.has_value()) return *absent;
    if (value == nullptr) return base::InvalidArgument("key '", key, "' is missing");
    // Some files store per-layer arrays; one number for all layers is what we support.
    if (value->is_array())
      return base::Unimplemented("key '", key, "' differs by layer, which is not supported");
    if (!value->is_int())
      return base::InvalidArgument("key '", key, "' is a ", value->type_name(), ", not an integer");
    if (value->as_int() < INT32_MIN || value->as_int() > INT32_MAX) {
      return base::InvalidArgument("key '", key, "' is ", value->as_int(), ", out of range");
    }
    return static_cast<int>(value->as_int());
  }

  Result<double> Double(const std::string& key, std::optional<double> absent = {}) const {
    const Json* value = metadata_.Find(key);
    if (value == nullptr && absent.has_value()) return *absent;
    if (value == nullptr) return base::InvalidArgument("key '", key, "' is missing");
    if (!value->is_number())
      return base::InvalidArgument("key '", key, "' is a ", value->type_name(), ", not a number");
    return value->as_double();
  }

  Result<bool> Bool(const std::string& key, bool absent) const {
    const Json* value = metadata_.Find(key);
    if (value == nullptr) return absent;
    if (!value->is_bool())
      return base::InvalidArgument("key '", key, "' is a ", value->type_name(), ", not a boolean");
    return value->as_bool();
  }

  Result<std::string> String(const std::string& key, const std::string& absent = "") const {
    const Json* value = metadata_.Find(key);
    if (value == nullptr) return absent;
    if (!value->is_string())
      return base::InvalidArgument("key '", key, "' is a ", value->type_name(), ", not a string");
    return value->as_string();
  }

  Result<std::vector<std::string>> Strings(const std::string& key) const {
    std::vector<std::string> out;
    const Json* value = metadata_.Find(key);
    if (value == nullptr) return out;
    if (!value->is_array())
      return base::InvalidArgument("key '", key, "' is a ", value->type_name(), ", not an array");
    out.reserve(value->as_array().size());
    for (const Json& item : value->as_array()) {
      if (!item.is_string())
        return base::InvalidArgument("key '", key, "' holds a ", item.type_name(),
                                     ", not a string");
      out.push_back(item.as_string());
    }
    return out;
  }

  Result<std::vector<double>> Numbers(const std::string& key) const {
    std::vector<double> out;
    const Json* value = metadata_.Find(key);
    if (value == nullptr) return out;
    if (!value->is_array())
      return base::InvalidArgument("key '", key, "' is a ", value->type_name(), ", not an array");
    out.reserve(value->as_array().size());
    for (const Json& item : value->as_array()) {
      if (!item.is_number())
        return base::InvalidArgument("key '", key, "' holds a ", item.type_name(),
                                     ", not a number");
      out.push_back(item.as_double());
    }
    return out;
  }

 private:
  const Json& metadata_;
};

Status RefuseUnsupportedRope(const Keys& keys, const std::string& prefix, const ModelFile& model) {
  ASSIGN_OR_RETURN(const std::string scaling, keys.String(prefix + "rope.scaling.type", "none"));
  if (scaling != "none")
    return base::Unimplemented("rope scaling '", scaling, "' is not supported");
  if (model.Find("rope_freqs.weight") != nullptr) {
    return base::Unimplemented("tensor 'rope_freqs.weight' (llama3 rope scaling) is not supported");
  }
  return OkStatus();
}

Result<std::vector<TokenType>> TokenTypes(const Keys& keys, std::size_t count) {
  ASSIGN_OR_RETURN(const auto numbers, keys.Numbers("tokenizer.ggml.token_type"));
  std::vector<TokenType> types;
  types.reserve(numbers.size());
  for (const double number : numbers) {
    if (!(number >= 0 && number <= 6))
      return base::InvalidArgument("tokenizer.ggml.token_type holds the unknown type ", number);
    types.push_back(number < 1 ? TokenType::kNormal
                               : static_cast<TokenType>(static_cast<int>(number)));
  }
  if (types.empty()) types.assign(count, TokenType::kNormal);
  return types;
}

// Tokens that end a turn by convention, whatever the file's ids say.
// Source: the control tokens of the model families' chat templates.
constexpr std::array kTurnEnds = {"<|im_end|>",      "<|eot_id|>",    "<|end|>", "<end_of_turn>",
                                  "<|end_of_text|>", "<|endoftext|>", "<turn|>", "<|eom_id|>"};

void AddTurnEnds(Vocabulary& vocabulary) {
  for (int id = 0; id < vocabulary.size(); ++id) {
    const auto at = static_cast<std::size_t>(id);
    if (vocabulary.types[at] != TokenType::kControl) continue;
    for (const char* name : kTurnEnds) {
      if (vocabulary.tokens[at] == name) vocabulary.stop_ids.push_back(id);
    }
  }
}

}  // namespace

Result<ModelConfig> ConfigFromMetadata(const ModelFile& model) {
  const Keys keys(model.metadata);
  ModelConfig c;
  ASSIGN_OR_RETURN(c.architecture, keys.String("general.architecture"));
  if (c.architecture.empty()) return base::InvalidArgument("key 'general.architecture' is missing");
  if (c.architecture != "llama")
    return base::Unimplemented("architecture '", c.architecture,
                               "' is not supported; supported is llama");
  const std::string prefix = c.architecture + ".";
  RETURN_IF_ERROR(RefuseUnsupportedRope(keys, prefix, model));
  ASSIGN_OR_RETURN(const int experts, keys.Int(prefix + "expert_count", 0));
  if (experts != 0)
    return base::Unimplemented("mixtures of experts (", experts, " experts) are not supported");
  ASSIGN_OR_RETURN(c.hidden_size, keys.Int(prefix + "embedding_length"));
  ASSIGN_OR_RETURN(c.intermediate_size, keys.Int(prefix + "feed_forward_length"));
  ASSIGN_OR_RETURN(c.num_hidden_layers, keys.Int(prefix + "block_count"));
  ASSIGN_OR_RETURN(c.num_attention_heads, keys.Int(prefix + "attention.head_count"));
  ASSIGN_OR_RETURN(c.num_key_value_heads,
                   keys.Int(prefix + "attention.head_count_kv", c.num_attention_heads));
  const int default_dim = c.num_attention_heads > 0 ? c.hidden_size / c.num_attention_heads : 0;
  ASSIGN_OR_RETURN(c.head_dim, keys.Int(prefix + "attention.key_length", default_dim));
  ASSIGN_OR_RETURN(const int value_dim, keys.Int(prefix + "attention.value_length", c.head_dim));
  if (value_dim != c.head_dim)
    return base::Unimplemented("heads whose keys (", c.head_dim, ") and values (", value_dim,
                               ") differ in size are not supported");
  ASSIGN_OR_RETURN(c.rope_dim, keys.Int(prefix + "rope.dimension_count", c.head_dim));
  ASSIGN_OR_RETURN(c.max_position_embeddings, keys.Int(prefix + "context_length"));
  ASSIGN_OR_RETURN(c.rms_norm_eps, keys.Double(prefix + "attention.layer_norm_rms_epsilon"));
  ASSIGN_OR_RETURN(c.rope_theta, keys.Double(prefix + "rope.freq_base", 10000.0));
  ASSIGN_OR_RETURN(const std::string activation, keys.String("thermocline.activation", "silu"));
  ASSIGN_OR_RETURN(c.hidden_act, ParseActivation(activation));
  ASSIGN_OR_RETURN(c.fatrelu_threshold, keys.Double("thermocline.fatrelu_threshold", 0.0));
  c.tie_word_embeddings = model.Find("output.weight") == nullptr;
  const TensorInfo* embedding = model.Find("token_embd.weight");
  if (embedding == nullptr) return base::InvalidArgument("tensor 'token_embd.weight' is missing");
  c.vocab_size = static_cast<int>(std::min<std::int64_t>(embedding->rows, INT32_MAX));
  if (model.vocabulary.kind != VocabularyKind::kNone && model.vocabulary.size() != c.vocab_size) {
    return base::InvalidArgument("the vocabulary has ", model.vocabulary.size(),
                                 " tokens, but tensor 'token_embd.weight' has ", c.vocab_size,
                                 " rows");
  }
  return c;
}

Result<Vocabulary> VocabularyFromMetadata(const Json& metadata) {
  const Keys keys(metadata);
  Vocabulary v;
  ASSIGN_OR_RETURN(const std::string kind, keys.String("tokenizer.ggml.model", "none"));
  if (kind == "none" || kind == "no_vocab") return v;
  if (kind == "llama") {
    v.kind = VocabularyKind::kSentencePiece;
  } else if (kind == "gpt2") {
    v.kind = VocabularyKind::kByteLevelBpe;
  } else if (kind == "gemma4") {
    v.kind = VocabularyKind::kSpaceBpe;
  } else {
    return base::Unimplemented("tokenizer '", kind,
                               "' (tokenizer.ggml.model) is not supported; supported are llama "
                               "(SentencePiece) and gpt2 (byte-level BPE)");
  }
  const bool sentencepiece = v.kind == VocabularyKind::kSentencePiece;
  ASSIGN_OR_RETURN(v.pre_tokenizer, keys.String("tokenizer.ggml.pre", "default"));
  ASSIGN_OR_RETURN(v.tokens, keys.Strings("tokenizer.ggml.tokens"));
  ASSIGN_OR_RETURN(v.types, TokenTypes(keys, v.tokens.size()));
  if (sentencepiece) {
    ASSIGN_OR_RETURN(const auto scores, keys.Numbers("tokenizer.ggml.scores"));
    v.scores.assign(scores.begin(), scores.end());
  } else {
    ASSIGN_OR_RETURN(v.merges, keys.Strings("tokenizer.ggml.merges"));
  }
  ASSIGN_OR_RETURN(v.bos, keys.Int("tokenizer.ggml.bos_token_id", sentencepiece ? 1 : -1));
  ASSIGN_OR_RETURN(v.eos, keys.Int("tokenizer.ggml.eos_token_id", sentencepiece ? 2 : -1));
  ASSIGN_OR_RETURN(v.eot, keys.Int("tokenizer.ggml.eot_token_id", -1));
  ASSIGN_OR_RETURN(v.unk, keys.Int("tokenizer.ggml.unknown_token_id", sentencepiece ? 0 : -1));
  ASSIGN_OR_RETURN(v.pad, keys.Int("tokenizer.ggml.padding_token_id", -1));
  const bool bos_by_default = sentencepiece || v.pre_tokenizer == "llama-bpe" ||
                              v.pre_tokenizer == "llama3" || v.pre_tokenizer == "tekken";
  ASSIGN_OR_RETURN(v.add_bos, keys.Bool("tokenizer.ggml.add_bos_token", bos_by_default));
  ASSIGN_OR_RETURN(v.add_space_prefix, keys.Bool("tokenizer.ggml.add_space_prefix", sentencepiece));
  ASSIGN_OR_RETURN(v.remove_extra_whitespaces,
                   keys.Bool("tokenizer.ggml.remove_extra_whitespaces", false));
  ASSIGN_OR_RETURN(v.chat_template, keys.String("tokenizer.chat_template"));
  ASSIGN_OR_RETURN(const auto stops, keys.Numbers("thermocline.stop_token_ids"));
  for (const double id : stops) {
    if (!(id >= 0 && id < 1e9))
      return base::InvalidArgument("thermocline.stop_token_ids holds ", id);
    v.stop_ids.push_back(static_cast<int>(id));
  }
  if (v.types.size() == v.tokens.size()) AddTurnEnds(v);
  return v;
}

}  // namespace thermocline::model
