// What an answer's text must be, as a client says it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace thermocline {

struct GrammarSpec {
  enum class Kind { kJsonObject, kJsonSchema, kRegex, kChoice, kGbnf };
  Kind kind = Kind::kJsonObject;
  std::string text = {};                  // kJsonSchema: JSON; kRegex, kGbnf
  std::vector<std::string> choices = {};  // kChoice
  std::string field = {};                 // as the protocol calls it
};

// What compiling grammars may take.
struct GrammarLimits {
  int bytes_max = 256 << 10;  // of a grammar, a schema, or all choices
  int states_max = 200'000;
  int compile_ms_max = 2000;
  std::int64_t cache_bytes = 128 << 20;  // of compiled grammars that are kept
};

}  // namespace thermocline
