// WordPiece: words are divided at white space, punctuation and CJK characters, and each word is cut
// into the longest pieces that the vocabulary has, from its begin on. A word's first piece begins
// with U+2581, as in GGUF files.
// Source: Devlin et al. 2018 (BERT); the tokenizers library's BertPreTokenizer and WordPiece.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "engine/text/tokenizer.h"

namespace thermocline::text {

class WordPieceTokenizer final : public Tokenizer {
 public:
  explicit WordPieceTokenizer(const model::Vocabulary& vocabulary);

 protected:
  void EncodePlain(std::string_view text, bool at_start, std::size_t piece_bytes,
                   std::vector<int>& out) const override;
  std::string BytesOf(int token) const override;

 private:
  // `word` begins with U+2581. Appends the unknown token if some part of it is no piece.
  void EncodeWord(std::string_view word, std::vector<int>& out) const;

  std::unordered_map<std::string_view, int> pieces_;  // normal tokens; views into vocabulary_
  std::size_t piece_bytes_max_ = 0;
};

}  // namespace thermocline::text
