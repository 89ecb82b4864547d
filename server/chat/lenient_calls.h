// Parses calls in lenient forms as an answer's text arrives (call_forms.h, call_reader.h).
//
// A text that may be calls is held. Arguments that are a JSON object are passed on as they arrive,
// once the call's name and their first key are read: bare objects at the answer's begin, and calls
// behind a mark. All others are held until the answer ends. Text that can no longer become a call
// is released at once.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "server/chat/call_parser.h"
#include "server/chat/call_reader.h"
#include "server/chat/json_scan.h"
#include "server/chat/message_part.h"
#include "server/chat/output_format.h"
#include "server/chat/tools.h"

namespace thermocline::chat {

inline constexpr std::size_t kHeldBytesMax = 64 << 10;  // held texts beyond are no calls

// Thread-compatible.
class LenientCalls {
 public:
  // All must outlive this. `parallel`: an answer may have several calls.
  LenientCalls(const OutputFormat& format, const std::vector<Tool>& tools, bool parallel);

  // A text's place. `begins`: it begins the answer; `native`: the template's mark begins it, or its
  // calls precede it; `further`: calls precede it.
  struct Place {
    bool begins = false, native = false, further = false;
  };
  void Begin(const Place& place);

  // Takes the decided start of `text` and appends parts. kMore: the rest is held; kNo: the rest is
  // text.
  Taken Push(std::string& text, CallParser& calls, std::vector<MessagePart>& out);
  // The answer ends behind `text`; afterwards the rest is text. Appends the calls in it.
  void Finish(TextEnd end, std::string& text, CallParser& calls, std::vector<MessagePart>& out);

  // True while arguments are passed on.
  bool in_arguments() const { return state_ == State::kArguments; }
  CallForm form() const { return form_; }
  // The rule by which the last text was no call, or calls were left out.
  CallRule rule() const { return rule_; }

 private:
  enum class State {
    kHeld,       // before a call's arguments
    kArguments,  // within arguments that are passed on
    kTail,       // behind them, within the call's object
    kDropped     // behind the only call that the answer may have
  };
  Taken Step(TextEnd end, std::string& text, CallParser& calls, std::vector<MessagePart>& out);
  Taken StepHeld(TextEnd end, std::string& text, CallParser& calls, std::vector<MessagePart>& out);
  Taken StepArguments(std::string& text, CallParser& calls, std::vector<MessagePart>& out);
  Taken StepTail(TextEnd end, std::string& text);
  void Count(const ReadCalls& found);
  bool MayCall(const CallParser& calls);

  const OutputFormat& format_;
  const std::vector<Tool>& tools_;
  const bool parallel_;
  std::vector<std::string_view> marks_;  // around the template's own calls
  State state_ = State::kHeld;
  Place place_;
  std::size_t next_check_ = 0;  // the held text is parsed again at this size
  int objects_ = 0;             // open ones around the arguments
  JsonScan scan_;
  CallForm form_ = CallForm::kNative;
  CallRule rule_ = CallRule::kNone;
};

}  // namespace thermocline::chat
