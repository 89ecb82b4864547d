#include "engine/model/vocabulary.h"

#include <algorithm>
#include <array>
#include <set>

#include "engine/base/index.h"

namespace thermocline::model {
namespace {

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

constexpr std::array<const char*, 6> kNormalizations = {"Lowercase", "NFC",  "NFD",
                                                        "NFKC",      "NFKD", "StripAccents"};

// Source: the control tokens of the model families' chat templates.
constexpr std::array kTurnEnds = {"<|im_end|>",      "<|eot_id|>",    "<|end|>", "<end_of_turn>",
                                  "<|end_of_text|>", "<|endoftext|>", "<turn|>", "<|eom_id|>",
                                  "<|return|>",      "<|call|>"};

// gpt-oss ends a turn with <|return|> or <|call|>, and each of its messages with <|end|>.
bool HasReturnAndCall(const Vocabulary& vocabulary) {
  const auto has = [&](const char* token) {
    return std::find(vocabulary.tokens.begin(), vocabulary.tokens.end(), token) !=
           vocabulary.tokens.end();
  };
  return has("<|return|>") && has("<|call|>");
}

// The texts "<|...|>" of a chat template. One pass for all tokens: a hostile file has many, and a
// long template.
std::set<std::string_view> TemplateMarkers(std::string_view chat_template) {
  constexpr std::size_t kMarkerMost = 256;  // bytes
  const std::string_view text = chat_template.substr(0, kTemplateBytesMax);
  std::set<std::string_view> markers;
  for (std::size_t at = text.find("<|"); at != std::string::npos; at = text.find("<|", at + 1)) {
    const std::size_t end = text.substr(at, kMarkerMost).find("|>", 2);
    if (end != std::string::npos) markers.insert(text.substr(at, end + 2));
  }
  return markers;
}

}  // namespace

const char* NormalizationName(Normalization form) { return kNormalizations[base::Index(form)]; }

std::optional<Normalization> ParseNormalization(std::string_view name) {
  const auto found = std::find(kNormalizations.begin(), kNormalizations.end(), name);
  if (found == kNormalizations.end()) return std::nullopt;
  return static_cast<Normalization>(found - kNormalizations.begin());
}

Status AddNormalizer(Normalization form, Vocabulary& vocabulary) {
  constexpr std::size_t kMost = 16;
  if (vocabulary.normalizers.size() == kMost)
    return base::InvalidArgument("the tokenizer has more than ", kMost, " normalizers");
  vocabulary.normalizers.push_back(form);
  return OkStatus();
}

void MarkTurnTokens(Vocabulary& vocabulary) {
  const bool harmony = HasReturnAndCall(vocabulary);
  const std::set<std::string_view> markers = TemplateMarkers(vocabulary.chat_template);
  std::set<int> known(vocabulary.stop_ids.begin(), vocabulary.stop_ids.end());
  for (int id = 0; id < vocabulary.size(); ++id) {
    const std::size_t at = id;
    const std::string& token = vocabulary.tokens[at];
    if (!token.starts_with('<') || vocabulary.types[at] == TokenType::kByte) continue;
    const bool ends = std::find(kTurnEnds.begin(), kTurnEnds.end(), token) != kTurnEnds.end();
    if (!ends && !markers.contains(token)) continue;
    vocabulary.types[at] = TokenType::kControl;
    const bool ends_message_only = harmony && token == "<|end|>";
    if (ends && !ends_message_only && known.insert(id).second) vocabulary.stop_ids.push_back(id);
  }
}

int ParseByteToken(const std::string& token) {
  if (token.size() != 6 || token.compare(0, 3, "<0x") != 0 || token[5] != '>') return -1;
  const int high = HexDigit(token[3]), low = HexDigit(token[4]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

Status ValidateVocabulary(const Vocabulary& v) {
  if (v.kind == VocabularyKind::kNone) return OkStatus();
  if (v.tokens.empty())
    return base::InvalidArgument("tokenizer.ggml.tokens: the vocabulary is empty");
  // The bounds of each token and of all, whose tries take fifty times the bytes: models have 2 MiB.
  constexpr std::size_t kTokenBytesMax = 1024, kTextBytesMax = 4 << 20;
  std::size_t text = 0;
  for (std::size_t id = 0; id < v.tokens.size(); ++id) {
    text += v.tokens[id].size();
    if (v.tokens[id].size() > kTokenBytesMax)
      return base::InvalidArgument("token ", id, " has ", v.tokens[id].size(), " bytes; at most ",
                                   kTokenBytesMax, " are supported");
  }
  if (text > kTextBytesMax)
    return base::InvalidArgument("the vocabulary's tokens have ", text, " bytes; at most ",
                                 kTextBytesMax, " are supported");
  if (v.types.size() != v.tokens.size()) {
    return base::InvalidArgument("tokenizer.ggml.token_type has ", v.types.size(),
                                 " entries, the vocabulary ", v.tokens.size());
  }
  const bool scored =
      v.kind == VocabularyKind::kSentencePiece || v.kind == VocabularyKind::kUnigram;
  if (scored && v.scores.size() != v.tokens.size()) {
    return base::InvalidArgument("tokenizer.ggml.scores has ", v.scores.size(),
                                 " entries, the vocabulary ", v.tokens.size());
  }
  constexpr std::size_t kCharsmapBytesMax = 4 << 20;  // SentencePiece's own have 240 KiB
  if (v.charsmap.size() > kCharsmapBytesMax)
    return base::InvalidArgument("tokenizer.ggml.precompiled_charsmap has ", v.charsmap.size(),
                                 " bytes; at most ", kCharsmapBytesMax, " are read");
  const auto check_id = [&](const char* name, int id) {
    if (id >= -1 && id < v.size()) return OkStatus();
    return base::InvalidArgument("tokenizer.ggml.", name, "_token_id is ", id,
                                 ", beyond the vocabulary of ", v.size());
  };
  RETURN_IF_ERROR(check_id("bos", v.bos));
  RETURN_IF_ERROR(check_id("eos", v.eos));
  RETURN_IF_ERROR(check_id("eot", v.eot));
  RETURN_IF_ERROR(check_id("unknown", v.unk));
  RETURN_IF_ERROR(check_id("padding", v.pad));
  for (const int id : v.stop_ids) RETURN_IF_ERROR(check_id("stop", id));
  for (std::size_t i = 0; i < v.tokens.size(); ++i) {
    if (v.types[i] == TokenType::kByte && ParseByteToken(v.tokens[i]) < 0) {
      return base::InvalidArgument("tokenizer.ggml.tokens[", i,
                                   "] is a byte token but not of the form <0xHH>");
    }
  }
  return OkStatus();
}

}  // namespace thermocline::model
