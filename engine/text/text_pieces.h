// Long texts are encoded in pieces, so that the memory of one piece is enough and others have their
// turn between two. Pieces end where no token can cross: their tokens are those of the whole text.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <unordered_set>

#include "engine/base/interruption.h"

namespace thermocline::text {

// Calls `encode` with consecutive pieces of `text`, each of `bytes` or more up to the next place
// where `is_cut(text, pos)` says that a piece may begin. Interrupted, it ends early.
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

// True if `pos` is between an ASCII letter and a space with another one behind it. Every
// pre-tokenizer of byte-level BPE ends a word there: none looks back, the letter's word cannot go
// on over the space, and the next word begins with it.
bool IsBetweenWords(std::string_view text, std::size_t pos);

// Finds where texts whose spaces are marked (MarkSpaces) may be cut: before a mark, if no token has
// that mark behind the same character, so that nothing is ever merged over it. Thread-safe once it
// is filled.
class MarkCuts {
 public:
  // To be called with every text that merging can make.
  void AddToken(std::string_view token);
  // Requires: `text` is well-formed UTF-8, pos > 0.
  bool operator()(std::string_view text, std::size_t pos) const;

 private:
  std::unordered_set<char32_t> before_marks_;
};

}  // namespace thermocline::text
