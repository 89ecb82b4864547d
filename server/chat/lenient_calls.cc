#include "server/chat/lenient_calls.h"

#include <algorithm>

namespace thermocline::chat {
namespace {

// A held text is parsed whenever it grows, and beyond this size whenever it has doubled, so that
// all parsing together takes time in proportion to its bytes.
constexpr std::size_t kParsedAlwaysBytes = 1 << 10;

std::size_t NextCheck(std::size_t bytes) { return bytes < kParsedAlwaysBytes ? 0 : 2 * bytes; }

std::string_view WithoutSpace(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(kBlank);
  if (begin == kNowhere) return {};
  return text.substr(begin, text.find_last_not_of(kBlank) + 1 - begin);
}

// The text is a tag or another mark in brackets.
bool IsMark(std::string_view text) {
  return text.size() > 2 && (text[0] == '<' || text[0] == '[') &&
         (text.back() == '>' || text.back() == ']') && text.find_first_of("{}\"") == kNowhere;
}

// The marks that stand alone in the template's format.
std::vector<std::string_view> MarksOf(const OutputFormat& format) {
  std::vector<std::string_view> out;
  const auto add = [&out](std::string_view text) {
    const auto rows = CallForms();
    text = WithoutSpace(text);
    const bool known = std::any_of(rows.begin(), rows.end(),
                                   [text](const CallFormRow& row) { return row.opening == text; });
    if (!known && IsMark(text)) out.push_back(text);
  };
  add(format.calls.trigger);
  add(format.calls.end);
  add(format.content_close);
  if (!format.calls.first.empty()) add(format.calls.first.back().text);
  return out;
}

// True if the template's own calls have the row's opening.
bool IsNative(const CallFormRow& row, const CallFormat& calls) {
  if (!calls.known()) return false;
  if (row.opening.size() == 1) return calls.at_start && calls.trigger.starts_with(row.opening);
  return calls.first[0].text.find(row.opening) != kNowhere;
}

}  // namespace

LenientCalls::LenientCalls(const OutputFormat& format, const std::vector<Tool>& tools,
                           bool parallel)
    : format_(format), tools_(tools), parallel_(parallel), marks_(MarksOf(format)) {}

void LenientCalls::Begin(const Place& place) {
  state_ = State::kHeld;
  place_ = place;
  next_check_ = 0;
}

Taken LenientCalls::Push(std::string& text, CallParser& calls, std::vector<MessagePart>& out) {
  Taken taken = Taken::kDone;
  while (taken == Taken::kDone && !text.empty()) taken = Step(TextEnd::kOpen, text, calls, out);
  return taken == Taken::kNo ? taken : Taken::kMore;
}

void LenientCalls::Finish(TextEnd end, std::string& text, CallParser& calls,
                          std::vector<MessagePart>& out) {
  next_check_ = 0;
  if (Push(text, calls, out) == Taken::kNo) return;
  next_check_ = 0;
  while (!text.empty() && Step(end, text, calls, out) == Taken::kDone) continue;
  if (state_ == State::kArguments && end == TextEnd::kEnded)
    calls.AddArguments(scan_.Closing(), out);
}

Taken LenientCalls::Step(TextEnd end, std::string& text, CallParser& calls,
                         std::vector<MessagePart>& out) {
  switch (state_) {
    case State::kHeld:
      return StepHeld(end, text, calls, out);
    case State::kArguments:
      return StepArguments(text, calls, out);
    case State::kTail:
      return StepTail(end, text);
    case State::kDropped:
      text.clear();
      return Taken::kDone;
  }
  return Taken::kNo;
}

Taken LenientCalls::StepHeld(TextEnd end, std::string& text, CallParser& calls,
                             std::vector<MessagePart>& out) {
  if (text.size() < next_check_ && text.size() <= kHeldBytesMax) return Taken::kMore;
  const bool full = text.size() > kHeldBytesMax;
  const std::string_view held = std::string_view(text).substr(0, kHeldBytesMax);
  const ReadCalls found = ReadLenientCalls(held, full ? TextEnd::kOpen : end,
                                           {.tools = tools_,
                                            .marks = marks_,
                                            .begins = place_.begins || place_.native,
                                            .further = place_.further});
  next_check_ = NextCheck(text.size());
  if (found.begun.has_value()) {
    Count(found);
    if (!MayCall(calls)) return Taken::kDone;
    calls.BeginCall(found.begun->tool->name, out);
    text.erase(0, found.begun->at);
    objects_ = found.begun->objects;
    scan_ = {};
    place_.further = true;
    state_ = State::kArguments;
    return Taken::kDone;
  }
  if (full || found.taken == Taken::kNo) {
    // Separators and closing marks behind a call are not text.
    if (place_.further) text.erase(0, found.skipped);
    if (found.rule != CallRule::kNone) rule_ = found.rule;
    return Taken::kNo;
  }
  if (end == TextEnd::kOpen) return Taken::kMore;
  if (!found.calls.empty()) Count(found);
  for (const ToolCall& call : found.calls) {
    if (!MayCall(calls)) return Taken::kDone;
    calls.BeginCall(call.name, out);
    calls.AddArguments(call.arguments, out);
  }
  text.clear();
  return Taken::kDone;
}

// Notes the form of the answer's first call.
void LenientCalls::Count(const ReadCalls& found) {
  const bool tolerated =
      place_.native || (found.row != nullptr && IsNative(*found.row, format_.calls));
  if (place_.further && !place_.native) return;
  form_ = tolerated ? CallForm::kTolerated : found.form;
}

// True if the answer may have one more call; otherwise all that follows is left out.
bool LenientCalls::MayCall(const CallParser& calls) {
  if (calls.count() == 0 || (parallel_ && calls.count() < kLenientCallsMax)) return true;
  rule_ = CallRule::kSeveral;
  state_ = State::kDropped;
  return false;
}

Taken LenientCalls::StepArguments(std::string& text, CallParser& calls,
                                  std::vector<MessagePart>& out) {
  std::size_t end = 0;
  bool ended = false;
  while (end < text.size() && !ended) ended = scan_.Push(text[end++]);
  calls.AddArguments(text.substr(0, end), out);
  text.erase(0, end);
  if (!ended) return Taken::kDone;
  next_check_ = 0;
  state_ = State::kTail;
  return Taken::kDone;
}

Taken LenientCalls::StepTail(TextEnd end, std::string& text) {
  if (text.size() < next_check_ && text.size() <= kHeldBytesMax) return Taken::kMore;
  CallCursor cursor(std::string_view(text).substr(0, kHeldBytesMax), TextEnd::kOpen);
  int objects = objects_;
  Taken taken = TakeObjectTails(cursor, objects);
  next_check_ = NextCheck(text.size());
  if (taken == Taken::kMore && text.size() > kHeldBytesMax) taken = Taken::kNo;
  if (taken == Taken::kMore && end == TextEnd::kOpen) return taken;
  if (taken != Taken::kNo) text.erase(0, cursor.at());
  if (taken == Taken::kMore) text.clear();  // the answer ends within the object
  next_check_ = 0;
  state_ = State::kHeld;
  return taken == Taken::kNo ? taken : Taken::kDone;
}

}  // namespace thermocline::chat
