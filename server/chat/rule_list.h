// The rules of a grammar of answers while they are written: GBNF, and parts that are no GBNF.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "engine/api/grammar_spec.h"
#include "server/chat/output_format.h"

namespace thermocline::chat {

// Not thread-safe. Borrows the format.
class RuleList {
 public:
  // `any_arguments`: schemas of tools that are not strict do not count.
  RuleList(const OutputFormat& format, bool any_arguments)
      : format_(format), any_arguments_(any_arguments) {}

  void Add(const std::string& name, const std::string& body) { rules_.emplace_back(name, body); }
  // Any text without `stops`; `at_start`: that does not begin with one.
  void AddText(const std::string& name, std::vector<std::string> stops, bool at_start);
  void AddPart(const std::string& name, const GrammarSpec& spec, bool lenient);
  // JSON that satisfies `schema`, of a tool; `lenient`: the tool is not strict.
  void AddSchema(const std::string& name, Json schema, bool lenient);
  // The strings that `schema` allows as they stand in calls: with the format's quotes, if it has
  // any, and without `stops`. None of them is in `except`.
  void AddString(const std::string& name, const Json& schema, std::vector<std::string> stops,
                 std::vector<std::string> except, bool quoted, bool lenient);

  // Text between quotes, and the control tokens in it by their ids.
  std::string Literal(const std::string& text) const;
  // Free text has no control tokens, whatever they are called.
  bool IsControl(const std::string& text) const;
  bool any_arguments() const { return any_arguments_; }

  // The grammar of what was added.
  GrammarSpec Take(std::string field);

 private:
  const OutputFormat& format_;
  const bool any_arguments_;
  std::vector<std::pair<std::string, std::string>> rules_;
  std::vector<GrammarPart> parts_;
};

}  // namespace thermocline::chat
