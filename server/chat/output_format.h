// A model's answer format: reasoning, text, tool calls. It is learned from the chat template
// (format_probe.h); the parser and the grammar of answers use it.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace thermocline::chat {

// A piece of a call: fixed text, or a hole.
struct CallPiece {
  enum class Kind {
    kText,
    kName,       // of the tool
    kArguments,  // JSON, or as TaggedArguments
    kId,         // nine letters or digits
    kIndex       // increases from call to call
  };
  Kind kind = Kind::kText;
  std::string text = {};  // kText
  bool operator==(const CallPiece&) const = default;
};
using CallPieces = std::vector<CallPiece>;

// The text around a value: before the value, between it and the next key, after the last value.
struct ValueMarks {
  std::string open, next, close;
};
// Arguments written one by one: `open` KEY text.open VALUE text.next KEY ... text.close. Strings
// are raw text, or in quotes with backslash escapes; other values are JSON.
struct TaggedArguments {
  std::string open;        // before the first key
  std::string empty;       // replaces everything if there are no arguments
  ValueMarks text, other;  // around strings, and around other values
  char quote = '\0';       // around strings; 0 = no quotes
  // The common start of `next` and `close`, which ends a string.
  std::string TextEnd() const;
};

struct CallFormat {
  CallPieces first;       // the first call; its start is common to all
  CallPieces next;        // each further call; empty: at most one call
  std::string end;        // after the last call
  std::string trigger;    // the start of `first`, which distinguishes a call from text
  bool at_start = false;  // the trigger counts only at the answer's start
  std::optional<TaggedArguments> tagged = {};  // nullopt: arguments are JSON

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
  bool call_ends_thought = false;  // a call's trigger within reasoning ends it (Qwen 3)
  // gpt-oss: messages with channels and recipients, which templates do not render as the model
  // generates them.
  bool harmony = false;

  // The text that begins an answer in a conversation and at the end of a prompt, a control token
  // first; "" if the two differ.
  std::string answer_open = {};
  // The texts of tokens that end an answer.
  std::vector<std::string> answer_ends = {};

  // The template's support for conversations.
  std::string tools_variable = "tools";
  bool lists_tools = false;          // it renders the list of tools
  bool writes_calls = false;         // it renders the calls of earlier answers
  bool writes_results = false;       // it renders tools' results
  bool arguments_are_text = false;   // arguments of calls must be JSON in a string
  bool system_role = true;           // a system message at the front
  bool several_systems = false;      // several system messages there
  bool late_system = false;          // a system message after an answer, rendered in place
  bool repeated_user = true;         // consecutive user messages
  bool user_after_result = true;     // a user message after a tool's result
  bool has_thinking_switch = false;  // it reads enable_thinking
  bool has_effort = false;           // it reads reasoning_effort
  bool reads_thinking = false;       // reasoning of messages is called thinking
  // Its variables that decide whether earlier reasoning stays, with the values for which it does.
  std::vector<std::pair<std::string, bool>> keeps_reasoning = {};
  bool ids_of_nine = false;  // ids must have nine letters and digits
  // Control tokens in the texts above, with their text, the longest first.
  std::vector<std::pair<std::string, int>> control_tokens = {};
};

// The literal texts of a format: the marks of reasoning and text and, with `calls`, of calls.
std::vector<std::string> TextsOf(const OutputFormat& format, bool calls = true);

// Control tokens whose text the answer's parser needs.
std::vector<int> ShownTokens(const OutputFormat& format, bool calls);

}  // namespace thermocline::chat
