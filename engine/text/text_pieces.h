// Encodes long texts in pieces, so that memory for one piece is enough and other work can run
// between pieces. Pieces end where no token can cross, so the tokens are those of the whole text.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <unordered_set>

#include "engine/base/interruption.h"

namespace thermocline::text {

// Calls `encode` with consecutive pieces of `text`, each of at least `bytes` bytes and ending at
// the next place where `is_cut(text, pos)` allows a piece to begin. Ends early if interrupted.
template <typename IsCut, typename Encode>
void ForEachPiece(std::string_view text, std::size_t bytes, const IsCut& is_cut,
                  const Encode& encode) {
  bytes = std::max<std::size_t>(bytes, 1);
  for (std::size_t begin = 0; begin < text.size() && !base::Interrupted();) {
    std::size_t end = begin + std::min(bytes, text.size() - begin);
    while (end < text.size() && !is_cut(text, end)) ++end;
    encode(text.substr(begin, end - begin));
    begin = end;
  }
}

// True if `pos` is between an ASCII letter and a space that is followed by another letter. Every
// pre-tokenizer of byte-level BPE ends a word there: none looks behind, the letter's word cannot
// continue over the space, and the next word begins with the space.
bool IsBetweenWords(std::string_view text, std::size_t pos);

// Finds places where texts with marked spaces (MarkSpaces) may be cut: before a mark, if no token
// contains that mark after the same character, so that no merge crosses the place. Thread-safe once
// all tokens are added.
class MarkCuts {
 public:
  // Must be called with every text that merging can produce.
  void AddToken(std::string_view token);
  // Requires: `text` is well-formed UTF-8, pos > 0.
  bool operator()(std::string_view text, std::size_t pos) const;

 private:
  std::unordered_set<char32_t> before_marks_;
};

}  // namespace thermocline::text
