// The token table as a model file stores it. engine/text builds tokenizers from it.
#pragma once

#include <cstdint>
#include <string>
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
};

struct Vocabulary {
  VocabularyKind kind = VocabularyKind::kNone;
  std::string pre_tokenizer;        // its name in GGUF ("llama-bpe"), byte-level BPE only
  std::vector<std::string> tokens;  // as stored
  std::vector<float> scores;        // SentencePiece only, else empty
  std::vector<TokenType> types;
  std::vector<std::string> merges;  // "left right", by rank
  int bos = -1, eos = -1, eot = -1, unk = -1, pad = -1;
  std::vector<int> stop_ids;  // further tokens that end a turn
  InfillTokens infill;
  bool add_bos = false;
  bool add_space_prefix = false;
  bool remove_extra_whitespaces = false;
  std::string chat_template;  // Jinja, "" if the file has none

  int size() const { return base::IntSize(tokens); }
};

// Consistent lengths, ids in range, byte tokens that parse. InvalidArgument names the key.
Status ValidateVocabulary(const Vocabulary& vocabulary);

// The byte of "<0xE2>", or -1 if `token` is not of that form. Digits only: no signs, no spaces.
int ParseByteToken(const std::string& token);

}  // namespace thermocline::model
