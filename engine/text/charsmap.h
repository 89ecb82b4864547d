// SentencePiece's precompiled map of normalization: which texts of characters become which others.
//
// The map is a trie in a double array, whose values are places in a list of zero-terminated texts.
// Files are not trusted: every step is checked against the sizes.
// Source: SentencePiece's normalizer; Yata et al. 2007, darts-clone's layout of units.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/status.h"

namespace thermocline::text {

// Thread-safe after Parse.
class Charsmap {
 public:
  // Maps nothing.
  Charsmap() = default;
  // `blob`: the size of the trie in bytes (little-endian 32 bits), the trie, the texts. Empty: maps
  // nothing. DataLoss: another form.
  static Result<Charsmap> Parse(std::string_view blob);

  // Replaces, from the begin on, the longest texts that the map has; other characters stay.
  std::string Apply(std::string_view text) const;

 private:
  // The bytes of `text` that are replaced; 0: none.
  std::size_t Match(std::string_view text, std::string_view& by) const;

  std::vector<std::uint32_t> units_;
  std::string texts_;
};

}  // namespace thermocline::text
