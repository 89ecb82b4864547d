// Builds the rules of an answer's grammar: GBNF, and parts such as schemas that are not GBNF.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "engine/api/grammar_spec.h"
#include "engine/base/json.h"
#include "server/chat/output_format.h"

namespace thermocline::chat {

// Not thread-safe. Borrows the format.
class RuleList {
 public:
  // `any_arguments`: ignores the schemas of tools that are not strict.
  RuleList(const OutputFormat& format, bool any_arguments)
      : format_(format), any_arguments_(any_arguments) {}

  // More text than any limit allows to compile. Callers stop adding rules once the list is full.
  static constexpr std::size_t kBytesMax = 4 << 20;
  bool full() const { return bytes_ > kBytesMax; }

  void Add(const std::string& name, const std::string& body) {
    bytes_ += name.size() + body.size();
    rules_.emplace_back(name, body);
  }
  // Adds a rule for any text without `stops`; `at_start`: for text that does not begin with a stop.
  void AddText(const std::string& name, std::vector<std::string> stops, bool at_start);
  void AddPart(const std::string& name, const GrammarSpec& spec, bool lenient);
  // Adds a rule for JSON that satisfies a tool's `schema`; `lenient`: the tool is not strict.
  void AddSchema(const std::string& name, Json schema, bool lenient);
  // Adds a rule for the strings that `schema` allows, as calls write them: with the format's
  // quotes, if it has any, without `stops`, and without the strings of `except`.
  void AddString(const std::string& name, const Json& schema, std::vector<std::string> stops,
                 std::vector<std::string> except, bool quoted, bool lenient);

  // The GBNF for `text`: quoted, with control tokens in it by their ids.
  std::string Literal(const std::string& text) const;
  // Free text never contains control tokens.
  bool IsControl(const std::string& text) const;
  bool any_arguments() const { return any_arguments_; }

  // Returns the grammar of all added rules.
  GrammarSpec Take(std::string field);

 private:
  const OutputFormat& format_;
  const bool any_arguments_;
  std::vector<std::pair<std::string, std::string>> rules_;
  std::vector<GrammarPart> parts_;
  std::size_t bytes_ = 0;  // of rules and parts
};

}  // namespace thermocline::chat
