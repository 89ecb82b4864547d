#include "engine/model/gguf/metadata.h"

#include <algorithm>
#include <array>

#include "engine/base/log.h"
#include "engine/model/gguf/keys.h"

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

// Reads the token id at `key`, with the prefix "tokenizer.ggml."; `absent` if the file has no such
// key, says none (-1, also as unsigned 32 bits), or gives an id outside of the vocabulary, as in
// llama.cpp. All token id keys are read by this function.
Result<int> TokenId(const Keys& keys, const std::string& name, int absent, int size) {
  constexpr double kNone = -1, kNoneUnsigned = 4294967295.0;
  const std::string key = "tokenizer.ggml." + name;
  ASSIGN_OR_RETURN(const double id, keys.Double(key, kNone));
  if (id >= 0 && id < size) return static_cast<int>(id);
  if (id != kNone && id != kNoneUnsigned)
    base::LogWarning("key '", key, "' is ", id, ", which is no token of the vocabulary of ", size,
                     "; it is ignored");
  return absent < size ? absent : -1;
}

// Phi 3's special tokens absorb the white space after them, for which GGUF has no key.
// Source: llama.cpp tells these files by their name, too.
void AddPhi3Edges(Vocabulary& v) {
  constexpr std::array<std::string_view, 3> kPlain = {"<unk>", "<s>", "<|endoftext|>"};
  for (int id = 0; id < v.size(); ++id) {
    const bool special = v.types[id] == TokenType::kControl ||
                         v.types[id] == TokenType::kUserDefined || v.tokens[id] == "</s>";
    const bool plain = std::find(kPlain.begin(), kPlain.end(), v.tokens[id]) != kPlain.end();
    if (special && !plain) v.edges[id].right_strip = true;
  }
}

// Reads our own keys, which `convert` writes for a tokenizer.json.
Status ReadOwnKeys(const Keys& keys, Vocabulary& v) {
  ASSIGN_OR_RETURN(v.prefix_space, keys.Bool("thermocline.tokenizer.prefix_space", false));
  const std::string merges = "thermocline.tokenizer.ignore_merges";
  if (keys.Has(merges)) {
    ASSIGN_OR_RETURN(v.ignore_merges, keys.Bool(merges, false));
  }
  ASSIGN_OR_RETURN(const auto names, keys.Strings("thermocline.tokenizer.normalizers"));
  for (const std::string& name : names) {
    const auto form = ParseNormalization(name);
    if (!form.has_value())
      return base::InvalidArgument("thermocline.tokenizer.normalizers: '", name, "' is not known");
    RETURN_IF_ERROR(AddNormalizer(*form, v));
  }
  // Pairs of id and flags.
  ASSIGN_OR_RETURN(const auto edges, keys.Numbers("thermocline.tokenizer.token_edges"));
  for (std::size_t i = 0; i + 1 < edges.size(); i += 2) {
    if (!(edges[i] >= 0 && edges[i] < v.size() && edges[i + 1] >= 0 && edges[i + 1] < 8))
      return base::InvalidArgument("thermocline.tokenizer.token_edges holds ", edges[i], ", ",
                                   edges[i + 1]);
    const auto flags = static_cast<unsigned>(edges[i + 1]);
    v.edges[static_cast<int>(edges[i])] = {.left_strip = (flags & 1) != 0,
                                           .right_strip = (flags & 2) != 0,
                                           .single_word = (flags & 4) != 0};
  }
  return OkStatus();
}

// The keys take precedence over the tokens' names. llama.cpp's older keys, without "fim_", are
// supported.
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
    ASSIGN_OR_RETURN(token, TokenId(keys, key.name, token, vocabulary.size()));
  }
  return OkStatus();
}

// Reads the keys of WordPiece, whose texts stand between [CLS] and [SEP]. Source: llama.cpp's keys.
Status ReadWordPiece(const Keys& keys, Vocabulary& v) {
  const auto named = [&v](const char* text, int absent) {
    const auto found = std::find(v.tokens.begin(), v.tokens.end(), text);
    return found == v.tokens.end() ? absent : static_cast<int>(found - v.tokens.begin());
  };
  ASSIGN_OR_RETURN(v.bos, TokenId(keys, "cls_token_id", named("[CLS]", v.bos), v.size()));
  ASSIGN_OR_RETURN(v.eos, TokenId(keys, "seperator_token_id", named("[SEP]", v.eos), v.size()));
  ASSIGN_OR_RETURN(const bool lower, keys.Bool("tokenizer.ggml.normalizer.lowercase", true));
  ASSIGN_OR_RETURN(const bool strip, keys.Bool("tokenizer.ggml.normalizer.strip_accents", lower));
  if (strip) v.normalizers = {Normalization::kNfd, Normalization::kStripAccents};
  if (lower) v.normalizers.push_back(Normalization::kLowercase);
  v.add_bos = v.bos >= 0;
  v.add_eos = v.eos >= 0;
  v.add_space_prefix = true;
  return OkStatus();
}

// Texts are divided at white space, as the tokenizers of the encoders with such vocabularies do.
Status ReadUnigram(const Keys& keys, Vocabulary& v) {
  ASSIGN_OR_RETURN(const bool joins, keys.Bool("tokenizer.ggml.remove_extra_whitespaces", false));
  if (!joins)
    return base::Unimplemented(
        "a Unigram tokenizer that keeps white space (tokenizer.ggml.remove_extra_whitespaces) is "
        "not supported");
  ASSIGN_OR_RETURN(const auto bytes, keys.Numbers("tokenizer.ggml.precompiled_charsmap"));
  for (const double byte : bytes) {
    // int8 in some files: the same bits.
    if (!(byte >= -128 && byte <= 255))
      return base::DataLoss("tokenizer.ggml.precompiled_charsmap holds ", byte, ", not a byte");
    v.charsmap.push_back(static_cast<char>(static_cast<int>(byte)));
  }
  const auto unknown = std::find(v.types.begin(), v.types.end(), TokenType::kUnknown);
  if (v.unk < 0 && unknown != v.types.end()) v.unk = static_cast<int>(unknown - v.types.begin());
  v.add_bos = v.bos >= 0;
  v.add_eos = v.eos >= 0;
  v.add_space_prefix = true;
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
  } else if (kind == "bert") {
    v.kind = VocabularyKind::kWordPiece;
  } else if (kind == "t5") {
    v.kind = VocabularyKind::kUnigram;
  } else {
    return base::Unimplemented("tokenizer '", kind,
                               "' (tokenizer.ggml.model) is not supported; supported are llama "
                               "(SentencePiece), gpt2 (byte-level BPE), gemma4, bert (WordPiece) "
                               "and t5 (Unigram)");
  }
  const bool sentencepiece = v.kind == VocabularyKind::kSentencePiece;
  ASSIGN_OR_RETURN(v.pre_tokenizer, keys.String("tokenizer.ggml.pre", "default"));
  ASSIGN_OR_RETURN(v.tokens, keys.Strings("tokenizer.ggml.tokens"));
  ASSIGN_OR_RETURN(v.types, TokenTypes(keys, v.tokens.size()));
  if (sentencepiece || v.kind == VocabularyKind::kUnigram) {
    ASSIGN_OR_RETURN(const auto scores, keys.Numbers("tokenizer.ggml.scores"));
    v.scores.assign(scores.begin(), scores.end());
  } else if (v.kind != VocabularyKind::kWordPiece) {
    ASSIGN_OR_RETURN(v.merges, keys.Strings("tokenizer.ggml.merges"));
  }
  ASSIGN_OR_RETURN(v.bos, TokenId(keys, "bos_token_id", sentencepiece ? 1 : -1, v.size()));
  ASSIGN_OR_RETURN(v.eos, TokenId(keys, "eos_token_id", sentencepiece ? 2 : -1, v.size()));
  ASSIGN_OR_RETURN(v.eot, TokenId(keys, "eot_token_id", -1, v.size()));
  ASSIGN_OR_RETURN(v.unk, TokenId(keys, "unknown_token_id", sentencepiece ? 0 : -1, v.size()));
  ASSIGN_OR_RETURN(v.pad, TokenId(keys, "padding_token_id", -1, v.size()));
  const bool bos_by_default = sentencepiece || v.pre_tokenizer == "llama-bpe" ||
                              v.pre_tokenizer == "llama3" || v.pre_tokenizer == "tekken";
  ASSIGN_OR_RETURN(v.add_bos, keys.Bool("tokenizer.ggml.add_bos_token", bos_by_default));
  if (v.kind == VocabularyKind::kWordPiece) RETURN_IF_ERROR(ReadWordPiece(keys, v));
  if (v.kind == VocabularyKind::kUnigram) RETURN_IF_ERROR(ReadUnigram(keys, v));
  if (v.bos < 0) v.add_bos = false;
  ASSIGN_OR_RETURN(v.add_eos, keys.Bool("tokenizer.ggml.add_eos_token", v.add_eos));
  ASSIGN_OR_RETURN(v.add_space_prefix, keys.Bool("tokenizer.ggml.add_space_prefix", sentencepiece));
  ASSIGN_OR_RETURN(v.remove_extra_whitespaces,
                   keys.Bool("tokenizer.ggml.remove_extra_whitespaces", false));
  ASSIGN_OR_RETURN(v.chat_template, keys.String("tokenizer.chat_template"));
  ASSIGN_OR_RETURN(v.tool_template, keys.String("tokenizer.chat_template.tool_use"));
  if (v.chat_template.empty()) v.chat_template = v.tool_template;
  ASSIGN_OR_RETURN(const auto stops, keys.Numbers("thermocline.stop_token_ids"));
  constexpr std::size_t kStopIdsMax = 4096;  // models have a few
  if (stops.size() > kStopIdsMax)
    return base::InvalidArgument("thermocline.stop_token_ids holds ", stops.size(), " numbers");
  for (const double id : stops) {
    if (!(id >= 0 && id < 1e9))
      return base::InvalidArgument("thermocline.stop_token_ids holds ", id);
    v.stop_ids.push_back(static_cast<int>(id));
  }
  if (v.types.size() == v.tokens.size()) {
    MarkTurnTokens(v);
    ASSIGN_OR_RETURN(const std::string architecture, keys.String("general.architecture", ""));
    if (architecture == "phi3" && sentencepiece) AddPhi3Edges(v);
  }
  RETURN_IF_ERROR(ReadOwnKeys(keys, v));
  RETURN_IF_ERROR(ReadInfillTokens(keys, v));
  return v;
}

}  // namespace thermocline::model
