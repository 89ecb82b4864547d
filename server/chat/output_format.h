// The form in which a model writes its answers: reasoning, text, calls of tools. Data, learned from
// its chat template (format_probe.h); the parser and the grammar of answers read it.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace thermocline::chat {

// A part of a call's text: what stands there always, or a hole.
struct CallPiece {
  enum class Kind {
    kText,
    kName,       // of the tool
    kArguments,  // JSON, or as TaggedArguments
    kId,         // nine letters or digits
    kIndex       // a number that grows from call to call
  };
  Kind kind = Kind::kText;
  std::string text = {};  // kText
  bool operator==(const CallPiece&) const = default;
};
using CallPieces = std::vector<CallPiece>;

// The text around a value: behind its key, before the next key, behind the last value.
struct ValueMarks {
  std::string open, next, close;
};
// Arguments one by one: `open` KEY text.open VALUE text.next KEY ... text.close. Strings are
// written as they are, or in quotes with backslashes; all else is JSON.
struct TaggedArguments {
  std::string open;        // before the first key
  std::string empty;       // instead of all, where there are none
  ValueMarks text, other;  // of strings, of all else
  char quote = '\0';       // that of strings, if they have one
  // The end of a string: `next` and `close` begin so.
  std::string TextEnd() const;
};

struct CallFormat {
  CallPieces first;       // the first call, and what all begin with
  CallPieces next;        // each further one; empty: there is one call at most
  std::string end;        // behind the last
  std::string trigger;    // with which `first` begins: what tells a call from text
  bool at_start = false;  // the trigger counts only where the answer begins
  std::optional<TaggedArguments> tagged = {};  // else arguments are JSON

  bool known() const { return !first.empty(); }
};

struct ReasoningTags {
  std::string open, close;
  bool known() const { return !close.empty(); }
};

struct OutputFormat {
  ReasoningTags reasoning = {};
  std::string content_open = {}, content_close = {};  // around text; often empty
  CallFormat calls = {};
  bool call_ends_thought = false;  // the trigger of calls within reasoning ends it: Qwen 3
  // gpt-oss: messages with channels and recipients, which no template's history shows as they are
  // generated.
  bool harmony = false;

  // The template's treatment of a history.
  std::string tools_variable = "tools";
  bool lists_tools = false;         // in the prompt
  bool writes_calls = false;        // of earlier answers
  bool writes_results = false;      // of tools
  bool arguments_are_text = false;  // it wants them as JSON in a string
  bool system_role = true;          // a system message at the front
  bool several_systems = false;     // several of them there
  bool late_system = false;         // one behind an answer, shown at its place
  bool repeated_user = true;        // user messages that follow each other
  bool user_after_result = true;    // a user message behind the result of a tool
  bool ids_of_nine = false;         // it accepts ids of nine letters and digits only
  // Control tokens in the texts above, by their text, the longest first.
  std::vector<std::pair<std::string, int>> control_tokens = {};
};

// The literal texts of a format: those of reasoning and text, and, with `calls`, those of calls.
std::vector<std::string> TextsOf(const OutputFormat& format, bool calls = true);

// Control tokens that an answer's parser has to see.
std::vector<int> ShownTokens(const OutputFormat& format, bool calls);

}  // namespace thermocline::chat
