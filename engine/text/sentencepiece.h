// SentencePiece BPE: characters are joined by the score of the resulting piece, spaces are U+2581,
// with byte fallback.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "engine/text/text_pieces.h"
#include "engine/text/tokenizer.h"

namespace thermocline::text {

inline constexpr std::string_view kSpaceMark = "\u2581";

// "<0xE2>" tokens by byte, -1 if the vocabulary has none.
std::vector<int> ByteTokens(const model::Vocabulary& vocabulary);
// MarkSpaces replaces each ' ' in `text` by U+2581; UnmarkSpaces does the reverse.
std::string MarkSpaces(std::string_view text);
std::string UnmarkSpaces(std::string_view text);

class SentencePieceTokenizer final : public Tokenizer {
 public:
  explicit SentencePieceTokenizer(const model::Vocabulary& vocabulary);

 protected:
  void EncodePlain(std::string_view text, bool at_start, std::size_t piece_bytes,
                   std::vector<int>& out) const override;
  std::string BytesOf(int token) const override;

 private:
  // Requires: `text` has its spaces marked.
  void EncodeMarked(std::string_view text, std::vector<int>& out) const;
  void AppendSymbol(std::string_view text, int id, std::vector<int>& out) const;

  std::unordered_map<std::string_view, int>
      pieces_;                    // normal and user-defined tokens; views into vocabulary_
  std::vector<int> byte_tokens_;  // [256]
  MarkCuts cuts_;
};

}  // namespace thermocline::text
