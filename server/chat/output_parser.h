// Parses an answer's text, as it arrives, into parts: reasoning, text, tool calls.
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

// The settings for parsing one answer. Shared by the choices of a request.
struct OutputParserConfig {
  std::shared_ptr<const OutputFormat> format;
  bool calls = false;            // parse calls
  bool in_reasoning = false;     // the prompt ends within reasoning
  bool continues = false;        // the prompt ends within the answer's text
  bool lenient = false;          // accept calls in other formats than the template's
  bool parallel = true;          // an answer may have several lenient calls
  std::vector<Tool> tools = {};  // for the types of arguments
};

// The number and form of one answer's calls.
struct CallTally {
  CallForm form = CallForm::kNative;
  int calls = 0;
  CallRule rejected = CallRule::kNone;  // the rule by which a candidate was text
};

// One per choice; thread-compatible. Text that may be part of a marker is held back until it is
// decided.
class OutputParser {
 public:
  explicit OutputParser(std::shared_ptr<const OutputParserConfig> config);

  // Appends the decided parts to `out`.
  void Push(std::string_view text, std::vector<MessagePart>& out);
  // Appends the held text: the answer has ended, with `cut` because of a limit.
  void Finish(bool cut, std::vector<MessagePart>& out);
  bool in_reasoning() const { return state_ == State::kReasoning; }
  bool in_call() const {
    return state_ == State::kCalls ||
           (state_ == State::kCandidate && lenient_calls_.in_arguments());
  }
  // The calls begun so far.
  CallTally tally() const;

 private:
  enum class State {
    kStart,
    kReasoning,
    kBehindReasoning,
    kText,
    kCandidate,  // in a text that may be calls in a lenient form
    kCalls,
    kBehindCalls,  // in text that is dropped
    kHeader,
    kMessage
  };
  static State FirstState(const OutputParserConfig& config);
  bool Step(std::vector<MessagePart>& out);
  bool StepStart();
  bool StepReasoning(std::vector<MessagePart>& out);
  bool StepText(std::vector<MessagePart>& out);
  bool StepCandidate(std::vector<MessagePart>& out);
  bool StepCalls(std::vector<MessagePart>& out);
  void LoseCall(std::vector<MessagePart>& out);
  void BeginCandidate(bool native);
  void LeaveCandidate(std::vector<MessagePart>& out);
  // The start of a call in the text: `at` in the template's form, npos if there is none; `keep`
  // bytes at the text's end may be the start of one; `wait`: the text must be held.
  struct NativeStart {
    std::size_t at = kNowhere, keep = 0;
    bool wait = false;
  };
  NativeStart FindNative() const;
  void FinishCandidate(bool cut, std::vector<MessagePart>& out);
  void CountProse(std::size_t bytes);
  bool StepHeader(std::vector<MessagePart>& out);
  bool StepMessage(std::vector<MessagePart>& out);
  bool SkipSpace();
  void EmitPart(MessagePart::Kind kind, std::size_t bytes, std::vector<MessagePart>& out);
  const OutputFormat& format() const { return *config_->format; }

  const std::shared_ptr<const OutputParserConfig> config_;
  State state_;
  std::string held_;           // text that is not decided yet
  bool text_emitted_ = false;  // text was emitted
  CallParser calls_;
  LenientCalls lenient_calls_;
  // Lenient forms are searched until one text that looked like one is none. The template's own form
  // is searched until there is a call.
  bool lenient_;
  bool native_candidate_ = false;  // the template's mark begins the candidate
  int lost_ = 0;                   // texts in the template's form that were no call
  bool line_begins_ = true;        // only spaces since the last line break
  std::size_t prose_ = 0;          // bytes of emitted text
  // The current message's channel.
  MessagePart::Kind channel_ = MessagePart::Kind::kText;
  bool to_tool_ = false;
};

}  // namespace thermocline::chat
