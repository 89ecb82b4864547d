// From an answer's text, as it comes, to its parts: reasoning, text, calls of tools.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/chat/call_parser.h"
#include "server/chat/lenient_calls.h"
#include "server/chat/message_part.h"
#include "server/chat/output_format.h"
#include "server/chat/tools.h"

namespace thermocline::chat {

// The settings for reading one answer. Shared by the choices of a request.
struct Reading {
  std::shared_ptr<const OutputFormat> format;
  bool calls = false;            // look for calls
  bool in_reasoning = false;     // the prompt ends within reasoning
  bool continues = false;        // the prompt ends within the answer's text
  bool lenient = false;          // calls may have other forms than the template's
  bool parallel = true;          // of those there may be several
  std::vector<Tool> tools = {};  // for the types of arguments
};

// The calls of one answer, counted.
struct CallTally {
  CallForm form = CallForm::kNative;
  int calls = 0;
  CallRule rejected = CallRule::kNone;  // why a candidate is text, if there was one
};

// One per choice; thread-compatible. What may become a marker is held back until that is clear.
class OutputParser {
 public:
  explicit OutputParser(std::shared_ptr<const Reading> reading);

  // Appends the parts that are certain to `out`.
  void Push(std::string_view text, std::vector<MessagePart>& out);
  // Appends what was held back: the answer has ended, because of a limit if it is `cut`.
  void Finish(bool cut, std::vector<MessagePart>& out);
  bool in_reasoning() const { return state_ == State::kReasoning; }
  bool in_call() const { return state_ == State::kCalls; }
  // Calls that were begun.
  CallTally tally() const {
    return {.form = form_, .calls = calls_.count(), .rejected = rejected_};
  }

 private:
  enum class State {
    kStart,
    kReasoning,
    kBehindReasoning,
    kText,
    kCandidate,
    kCalls,
    kHeader,
    kMessage
  };
  static State FirstState(const Reading& reading);
  bool Step(std::vector<MessagePart>& out);
  bool StepStart();
  bool StepReasoning(std::vector<MessagePart>& out);
  bool StepText(std::vector<MessagePart>& out);
  bool StepCandidate();
  bool StepCalls(std::vector<MessagePart>& out);
  // The place in what is held at which a lenient form may begin, or npos.
  std::size_t FindLenient() const;
  void FinishCandidate(bool cut, std::vector<MessagePart>& out);
  void NoteProse(std::size_t bytes);
  bool StepHeader(std::vector<MessagePart>& out);
  bool StepMessage(std::vector<MessagePart>& out);
  bool SkipSpace();
  void Say(MessagePart::Kind kind, std::size_t bytes, std::vector<MessagePart>& out);
  const OutputFormat& format() const { return *reading_->format; }

  const std::shared_ptr<const Reading> reading_;
  State state_;
  std::string held_;       // not decided yet
  bool said_ = false;      // text came
  std::string call_text_;  // what was read of calls
  CallParser calls_;
  // Lenient forms are looked for until a candidate turned out to be text.
  bool lenient_;
  bool line_begins_ = true;  // only spaces since the last line's end
  std::size_t prose_ = 0;    // bytes of text that were said
  CallForm form_ = CallForm::kNative;
  CallRule rejected_ = CallRule::kNone;
  // For a message with a channel.
  MessagePart::Kind channel_ = MessagePart::Kind::kText;
  bool to_tool_ = false;
};

}  // namespace thermocline::chat
