// The token table as a model file stores it. engine/text builds tokenizers from it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/index.h"
#include "engine/base/status.h"
#include "engine/model/infill_tokens.h"

namespace thermocline::model {

enum class TokenType : std::uint8_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6
};

enum class VocabularyKind {
  kNone,
  kSentencePiece,  // BPE by score over characters, spaces as U+2581, byte fallback
  kByteLevelBpe,   // BPE by merge rank over GPT-2's byte alphabet, after a pre-tokenizer
  kSpaceBpe,       // BPE by merge rank over characters, spaces as U+2581, byte fallback (Gemma 4)
  kUnigram,        // the pieces of words with the best sum of scores (XLM-RoBERTa)
  kWordPiece,      // the longest pieces of words; a word's first piece begins with U+2581 (BERT)
};

// A change of a text before it is tokenized. Source: Hugging Face's tokenizers, "normalizer".
enum class Normalization { kLowercase, kNfc, kNfd, kNfkc, kNfkd, kStripAccents };

// "Lowercase", "NFC", ..., as tokenizer.json has them.
const char* NormalizationName(Normalization form);
std::optional<Normalization> ParseNormalization(std::string_view name);

// The text around an added token that belongs to it. Source: Hugging Face's tokenizers, AddedToken.
struct TokenEdges {
  bool left_strip = false, right_strip = false;  // white space before it, after it
  bool single_word = false;                      // matches only if no word is next to it

  bool any() const { return left_strip || right_strip || single_word; }
};

// A longer template is refused: it becomes a hundred times its bytes. Models' have some 20,000.
inline constexpr std::size_t kTemplateBytesMax = 256 << 10;

struct Vocabulary {
  VocabularyKind kind = VocabularyKind::kNone;
  std::string pre_tokenizer;        // its name in GGUF ("llama-bpe"), byte-level BPE only
  std::vector<std::string> tokens;  // as stored
  std::vector<float> scores;        // SentencePiece and Unigram only, else empty
  std::string charsmap;             // Unigram: SentencePiece's map of normalization, or empty
  std::vector<TokenType> types;
  std::vector<std::string> merges;  // "left right", by rank
  int bos = -1, eos = -1, eot = -1, unk = -1, pad = -1;
  std::vector<int> stop_ids;  // further tokens that end a turn
  InfillTokens infill;
  bool one_separator = false;             // between the texts of a pair; else by kind
  bool add_bos = false, add_eos = false;  // add_eos: of texts of which vectors are made
  bool add_space_prefix = false;
  bool remove_extra_whitespaces = false;
  bool prefix_space = false;               // byte-level BPE: adds a space before a text without one
  std::vector<Normalization> normalizers;  // in this order
  std::map<int, TokenEdges> edges;         // of the tokens that have any, by id
  // A word that is a token is not merged. Without a value: the pre-tokenizer's default.
  std::optional<bool> ignore_merges;
  std::string chat_template;  // Jinja, "" if the file has none
  std::string tool_template;  // Jinja, used instead if tools are given; "" = the same

  int size() const { return base::IntSize(tokens); }
};

// Adds a form to the vocabulary's normalizers, each of which takes a pass over every text. Errors:
// InvalidArgument beyond 16.
Status AddNormalizer(Normalization form, Vocabulary& vocabulary);

// Changes the markers of turns to control tokens if a file gives them another type: those that end
// a turn by convention, and <|...|> of the chat template. Text of clients must not be tokenized as
// one. Adds the former to stop_ids. Source: llama.cpp overrides their types, too.
void MarkTurnTokens(Vocabulary& vocabulary);

// Checks for consistent lengths, ids in range and byte tokens that parse. InvalidArgument names the
// key.
Status ValidateVocabulary(const Vocabulary& vocabulary);

// Returns the byte of "<0xE2>", or -1 if `token` has another form. Digits only: no signs, no
// spaces.
int ParseByteToken(const std::string& token);

}  // namespace thermocline::model
