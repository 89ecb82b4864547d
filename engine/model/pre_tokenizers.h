// The patterns by which published tokenizers cut text into words, by GGUF's names.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace thermocline::model {

// The white space at a piece's end, found without a regular expression: the pattern would take
// quadratic time in a run of spaces that is followed by text, because it is tried at each space.
inline constexpr const char* kTrailingSpace = R"(\s+$)";

// Digits in groups of three from a number's end: R"(\d{1,3}(?=(?:\d{3})*\b))", which takes
// quadratic time in a long number. This pattern finds the numbers, and they are cut by hand.
inline constexpr const char* kDigitGroups = R"((?<!\d)\d++\b)";
// The same of all numbers, whatever follows them.
inline constexpr const char* kNumberGroups = R"(\p{N}++)";

// Patterns are applied in turn: each splits every piece of the previous one into matches and the
// gaps between them.
struct PreTokenizerRecipe {
  std::vector<const char*> names;  // of tokenizer.ggml.pre
  std::vector<const char*> patterns;
  bool ignore_merges = false;  // a word that is itself a token is used without merging (Llama 3)
};

const std::vector<PreTokenizerRecipe>& PreTokenizerRecipes();

// The pattern of a byte-level tokenizer that gives none.
extern const char* const kByteLevelPattern;

// The name of the recipe with these patterns, as a tokenizer.json writes them; "" = none is known.
std::string_view PreTokenizerOf(std::vector<std::string> patterns);

}  // namespace thermocline::model
