// JSON strings with constrained content, as states.
//
// Constraints apply to a string's content, so they are automata over content; the output spells it:
// only characters that need an escape are escaped.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/grammar/budget.h"
#include "engine/grammar/dfa.h"

namespace thermocline::grammar {

struct StringBounds {
  std::vector<std::string> patterns = {}, formats = {};
  std::int64_t min_length = 0, max_length = -1;  // characters; -1 = any

  bool any() const {
    return patterns.empty() && formats.empty() && min_length == 0 && max_length < 0;
  }
};

// The regular expression of `format`; "": the format has no effect here (binary, int32, ...).
// Unimplemented: the format is unknown.
Result<std::string> PatternOfFormat(const std::string& format);

// Contents within `bounds`. Lengths up to kLengthsMax. Errors as ParseRegex and PatternOfFormat.
inline constexpr std::int64_t kLengthsMax = 4096;
Result<Dfa> ContentOf(const StringBounds& bounds, Budget& budget);
// Returns the contents in which a pattern finds a match anywhere.
Result<Dfa> ContentOfPattern(const std::string& pattern, Budget& budget);
// All contents except `without`, which are whole contents.
Result<Dfa> ContentWithout(const std::vector<std::string>& without, Budget& budget);

// The contents as strings between quotes.
void AddQuoted(const Dfa& content, int from, Nfa& nfa, int to);
// The contents with a backslash before `quote` and backslashes, and line ends as \n, as in Python's
// quoted strings.
void AddEscaped(const Dfa& content, char quote, int from, Nfa& nfa, int to);
// Any string.
void AddAnyString(int from, Nfa& nfa, int to);
// Adds a string of `min` to `max` characters (-1 = any number).
void AddCountedString(int min, int max, int from, Nfa& nfa, int to);
// Adds a string of `min` to `max` characters, which may be large (-1 = any number): `block` and
// `rest` are rules made by MakeBlock and MakeRest.
inline constexpr int kBlockChars = 256;
struct BlockRules {
  int block, rest;
};
void MakeBlock(Nfa& nfa);
void MakeRest(Nfa& nfa);
void AddLongString(std::int64_t min, std::int64_t max, const BlockRules& rules, int from, Nfa& nfa,
                   int to);

}  // namespace thermocline::grammar
