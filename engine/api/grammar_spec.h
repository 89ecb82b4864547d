// The grammar of an answer's text, as a client gives it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace thermocline {

struct GrammarSpec;

// A rule of a GBNF grammar that is no GBNF.
struct GrammarPart {
  std::string name;                                   // of the rule
  std::shared_ptr<const GrammarSpec> spec = nullptr;  // what the rule derives; nullptr: free text
  std::vector<std::string> stops =
      {};                 // of free text: what it does not contain, none of them empty
  bool at_start = false;  // what it does not begin with, rather
  // The rule derives the strings that the schema `spec` allows, without `stops`, as they are and
  // not as JSON; with `quote`, as they stand between two of these, with backslashes.
  bool bare = false;
  std::vector<std::string> except = {};  // whole strings that it does not derive
  char quote = '\0';
  // A schema that is not supported may be taken for any object.
  bool lenient = false;
};

struct GrammarSpec {
  enum class Kind { kJsonObject, kJsonSchema, kRegex, kChoice, kGbnf };
  Kind kind = Kind::kJsonObject;
  std::string text = {};                  // kJsonSchema: JSON; kRegex, kGbnf
  std::vector<std::string> choices = {};  // kChoice
  std::string field = {};                 // as the protocol calls it
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
  std::int64_t memory_bytes = 256 << 20;  // of all: compiled ones, and what compiling takes

  // For compiled grammars, in use by answers or kept.
  std::int64_t compiled_bytes_max() const { return memory_bytes / 2; }
  // For compiling one.
  std::int64_t compile_bytes_max() const { return memory_bytes / 2 / kGrammarsCompiledAtOnce; }
};

}  // namespace thermocline
