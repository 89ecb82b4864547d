#include "engine/model/gguf_metadata.h"

#include <array>

#include "engine/model/gguf_keys.h"

namespace thermocline::model {
namespace {

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
    const std::size_t at = id;
    if (vocabulary.types[at] != TokenType::kControl) continue;
    for (const char* name : kTurnEnds) {
      if (vocabulary.tokens[at] == name) vocabulary.stop_ids.push_back(id);
    }
  }
}

// The keys' word counts more than the tokens' names. Those of llama.cpp before "fim_" stay
// readable.
Status ReadInfillTokens(const Keys& keys, Vocabulary& vocabulary) {
  vocabulary.infill = FindInfillTokens(vocabulary);
  struct Key {
    const char* name;
    int InfillTokens::*token;
  };
  constexpr Key kKeys[] = {{"prefix_token_id", &InfillTokens::prefix},
                           {"suffix_token_id", &InfillTokens::suffix},
                           {"middle_token_id", &InfillTokens::middle},
                           {"fim_pre_token_id", &InfillTokens::prefix},
                           {"fim_suf_token_id", &InfillTokens::suffix},
                           {"fim_mid_token_id", &InfillTokens::middle},
                           {"fim_pad_token_id", &InfillTokens::pad},
                           {"fim_rep_token_id", &InfillTokens::repository},
                           {"fim_sep_token_id", &InfillTokens::separator}};
  for (const Key& key : kKeys) {
    int& token = vocabulary.infill.*key.token;
    ASSIGN_OR_RETURN(token, keys.Int(StrCat("tokenizer.ggml.", key.name), token));
    if (token >= vocabulary.size()) token = -1;
  }
  return OkStatus();
}

}  // namespace

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
  if (v.bos < 0) v.add_bos = false;
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
  RETURN_IF_ERROR(ReadInfillTokens(keys, v));
  return v;
}

}  // namespace thermocline::model
