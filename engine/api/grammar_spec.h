// The grammar of an answer's text, as a client specifies it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace thermocline {

struct GrammarSpec;

// A rule of a GBNF grammar that is defined outside GBNF.
struct GrammarPart {
  std::string name;                                   // of the rule
  std::shared_ptr<const GrammarSpec> spec = nullptr;  // the rule's language; nullptr: free text
  std::vector<std::string> stops =
      {};                 // of free text: strings that it must not contain, none of them empty
  bool at_start = false;  // instead, strings that it must not begin with
  // The rule derives the strings that the schema `spec` allows, without `stops`, as plain text and
  // not as JSON; with `quote`, as they appear between two such quotes, with backslash escapes.
  bool bare = false;
  std::vector<std::string> except = {};  // whole strings that the rule excludes
  char quote = '\0';
  // An unsupported schema may be replaced by any object.
  bool lenient = false;
};

struct GrammarSpec {
  enum class Kind { kJsonObject, kJsonSchema, kRegex, kChoice, kGbnf };
  Kind kind = Kind::kJsonObject;
  std::string text = {};                  // kJsonSchema: JSON; kRegex, kGbnf
  std::vector<std::string> choices = {};  // kChoice
  std::string field = {};                 // the protocol's name of the field
  std::vector<GrammarPart> parts = {};    // kGbnf: rules that `text` uses and does not define
};

// Grammars that are compiled at the same time.
inline constexpr int kGrammarsCompiledAtOnce = 2;

// Limits on grammars.
struct GrammarLimits {
  int bytes_max = 256 << 10;  // of a grammar, a schema, or all choices
  int states_max = 200'000;
  int compile_ms_max = 2000;
  std::int64_t cache_bytes = 96 << 20;    // of compiled grammars that are kept
  std::int64_t memory_bytes = 256 << 20;  // for all: compiled grammars and compilation

  // The limit for compiled grammars, both in use by answers and cached.
  std::int64_t compiled_bytes_max() const { return memory_bytes / 2; }
  // The limit for one compilation.
  std::int64_t compile_bytes_max() const { return memory_bytes / 2 / kGrammarsCompiledAtOnce; }
};

}  // namespace thermocline
