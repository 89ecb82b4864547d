// Unigram: of all ways to cut a word into pieces of the vocabulary, the one whose scores have the
// largest sum. Words are divided at white space and begin with U+2581.
// Source: Kudo 2018; SentencePiece's unigram model; the tokenizers library's Unigram.
#pragma once

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "engine/text/charsmap.h"
#include "engine/text/tokenizer.h"

namespace thermocline::text {

class UnigramTokenizer final : public Tokenizer {
 public:
  UnigramTokenizer(const model::Vocabulary& vocabulary, Charsmap charsmap);

 protected:
  void EncodePlain(std::string_view text, bool at_start, std::size_t piece_bytes,
                   std::vector<int>& out) const override;
  std::string BytesOf(int token) const override;

 private:
  struct Piece {
    std::string_view text;  // into vocabulary_
    int id;
  };
  // The best way to a byte of a word.
  struct Way {
    float score = 0;
    int token = -1;         // the last one; -1: there is no way yet
    std::size_t begin = 0;  // of it
  };

  void EncodeWord(std::string_view word, std::vector<Way>& ways, std::vector<int>& out) const;
  // Extends the ways that end at `at` by each piece that begins there. Returns true if one of them
  // is a single character of `size` bytes.
  bool Extend(std::string_view word, std::size_t at, std::size_t size,
              std::vector<Way>& ways) const;

  Charsmap charsmap_;
  std::vector<Piece> pieces_;  // normal and user-defined tokens, by text
  std::array<std::pair<std::size_t, std::size_t>, 256> by_byte_ = {};  // of pieces_, by first byte
  float unknown_score_ = 0;
};

}  // namespace thermocline::text
