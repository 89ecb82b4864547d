#include "server/chat/output_parser.h"

#include <algorithm>

namespace thermocline::chat {
namespace {

using Part = MessagePart::Kind;
constexpr const char* kSpace = " \n\r\t";

// Returns how many bytes at the end of `text` may be the start of `marker`.
std::size_t Overlap(std::string_view text, std::string_view marker) {
  if (marker.empty()) return 0;
  for (std::size_t n = std::min(text.size(), marker.size() - 1); n > 0; --n)
    if (text.substr(text.size() - n) == marker.substr(0, n)) return n;
  return 0;
}

// More white space than this belongs to the text, so that a flood of it is not held.
constexpr std::size_t kSpaceBytesMax = 512;
// A template's mark that no call follows, again and again, is text without a closer look.
constexpr int kLostCallsMax = 16;

// White space at the end, which belongs to a marker that may follow.
std::size_t SpaceAtEnd(std::string_view text) {
  text = text.substr(text.size() - std::min(text.size(), kSpaceBytesMax));
  const std::size_t last = text.find_last_not_of(kSpace);
  return last == kNowhere ? text.size() : text.size() - last - 1;
}

enum class Fit { kNo, kPart, kWhole };
Fit Begins(std::string_view text, std::string_view marker) {
  if (marker.empty()) return Fit::kNo;
  const std::size_t size = std::min(text.size(), marker.size());
  if (text.substr(0, size) != marker.substr(0, size)) return Fit::kNo;
  return size == marker.size() ? Fit::kWhole : Fit::kPart;
}

}  // namespace

OutputParser::State OutputParser::FirstState(const OutputParserConfig& config) {
  if (config.in_reasoning) return State::kReasoning;
  const bool harmony = config.format->harmony;
  if (config.continues) return harmony ? State::kMessage : State::kText;
  return harmony ? State::kHeader : State::kStart;
}

OutputParser::OutputParser(std::shared_ptr<const OutputParserConfig> config)
    : config_(std::move(config)),
      state_(FirstState(*config_)),
      text_emitted_(config_->continues),
      calls_(*config_->format, config_->tools),
      lenient_calls_(*config_->format, config_->tools, config_->parallel),
      lenient_(config_->lenient && !config_->format->harmony) {}

void OutputParser::Push(std::string_view text, std::vector<MessagePart>& out) {
  held_ += text;
  while (!held_.empty() && Step(out)) continue;
}

void OutputParser::Finish(bool cut, std::vector<MessagePart>& out) {
  switch (state_) {
    case State::kReasoning:
      EmitPart(Part::kReasoning, held_.size() - SpaceAtEnd(held_), out);
      break;
    case State::kMessage:
      if (to_tool_) {
        calls_.AddArguments(held_, out);
      } else {
        EmitPart(channel_, held_.size(), out);
      }
      break;
    case State::kHeader:
    case State::kBehindCalls:
      break;
    case State::kCandidate:
      FinishCandidate(cut, out);
      break;
    case State::kCalls:
      if (calls_.count() == 0) {  // the text did not become a call in the template's form
        LoseCall(out);
        while (!held_.empty() && Step(out)) continue;
        return Finish(cut, out);
      }
      calls_.Finish(held_, cut, out);
      break;
    default:
      EmitPart(Part::kText, held_.size(), out);
  }
  held_.clear();
}

CallTally OutputParser::tally() const {
  CallForm form = lenient_calls_.form();
  if (form == CallForm::kNative && calls_.tolerated()) form = CallForm::kTolerated;
  return {.form = form, .calls = calls_.count(), .rejected = lenient_calls_.rule()};
}

// Returns true if it made progress.
bool OutputParser::Step(std::vector<MessagePart>& out) {
  switch (state_) {
    case State::kStart:
      return StepStart();
    case State::kReasoning:
      return StepReasoning(out);
    case State::kBehindReasoning:
      return SkipSpace();
    case State::kText:
      return StepText(out);
    case State::kCandidate:
      return StepCandidate(out);
    case State::kCalls:
      return StepCalls(out);
    case State::kBehindCalls:
      held_.clear();
      return false;
    case State::kHeader:
      return StepHeader(out);
    case State::kMessage:
      return StepMessage(out);
  }
  return false;
}

// Before the first word, reasoning or the text's mark may begin.
bool OutputParser::StepStart() {
  const std::size_t begin = std::min(held_.find_first_not_of(kSpace), held_.size());
  if (begin > kSpaceBytesMax) {
    state_ = State::kText;
    return true;
  }
  if (begin == held_.size()) return false;
  const std::string_view text = std::string_view(held_).substr(begin);
  const Fit reasoning = Begins(text, format().reasoning.open),
            content = Begins(text, format().content_open);
  if (reasoning == Fit::kWhole) {
    held_.erase(0, begin + format().reasoning.open.size());
    state_ = State::kReasoning;
    return true;
  }
  if (content == Fit::kWhole) {
    held_.erase(0, begin + format().content_open.size());
    state_ = State::kText;
    return true;
  }
  if (reasoning == Fit::kPart || content == Fit::kPart) return false;
  state_ = State::kText;
  return true;
}

bool OutputParser::StepReasoning(std::vector<MessagePart>& out) {
  if (!text_emitted_) {  // drops the line break after the opening tag
    const std::size_t begin = held_.find_first_not_of(kSpace);
    if (begin == kNowhere) return false;
    held_.erase(0, begin);
    text_emitted_ = true;
  }
  const std::string& close = format().reasoning.close;
  const std::size_t at = held_.find(close);
  const std::string call =
      config_->calls && format().call_ends_thought ? format().calls.trigger : "";
  const std::size_t called = call.empty() ? kNowhere : held_.find(call);
  if (called < at) {
    EmitPart(Part::kReasoning, called - SpaceAtEnd(std::string_view(held_).substr(0, called)), out);
    held_.erase(0, held_.find(call));
    text_emitted_ = false;
    state_ = State::kCalls;
    return true;
  }
  if (at != kNowhere) {
    EmitPart(Part::kReasoning, at - SpaceAtEnd(std::string_view(held_).substr(0, at)), out);
    held_.erase(0, held_.find(close) + close.size());
    text_emitted_ = false;
    state_ = State::kBehindReasoning;
    return true;
  }
  std::size_t keep = std::max(Overlap(held_, close), Overlap(held_, call));
  keep += SpaceAtEnd(std::string_view(held_).substr(0, held_.size() - keep));
  EmitPart(Part::kReasoning, held_.size() - keep, out);
  return false;
}

bool OutputParser::SkipSpace() {
  const std::size_t begin = held_.find_first_not_of(kSpace);
  held_.erase(0, std::min(begin, held_.size()));
  if (held_.empty()) return false;
  const Fit content = Begins(held_, format().content_open);
  if (content == Fit::kPart) return false;
  if (content == Fit::kWhole) held_.erase(0, format().content_open.size());
  state_ = State::kText;
  return true;
}

OutputParser::NativeStart OutputParser::FindNative() const {
  const CallFormat& calls = format().calls;
  NativeStart out;
  if (!config_->calls || !calls.known() || calls_.count() > 0) return out;
  if (!calls.at_start) {
    out.at = held_.find(calls.trigger);
    out.keep = Overlap(held_, calls.trigger);
    if (out.at == kNowhere && out.keep > 0)
      out.keep += SpaceAtEnd(std::string_view(held_).substr(0, held_.size() - out.keep));
    if (out.keep == 0) out.keep = SpaceAtEnd(held_);
    return out;
  }
  if (text_emitted_) return out;
  const std::size_t begin = std::min(held_.find_first_not_of(kSpace), held_.size());
  if (begin > kSpaceBytesMax) return out;
  const Fit fit = begin == held_.size()
                      ? Fit::kPart
                      : Begins(std::string_view(held_).substr(begin), calls.trigger);
  out.wait = fit == Fit::kPart;
  if (fit == Fit::kWhole) out.at = begin;
  return out;
}

bool OutputParser::StepText(std::vector<MessagePart>& out) {
  NativeStart native = FindNative();
  if (native.wait) return false;
  const FoundForm found =
      lenient_ ? FindCallForm(held_, {.begins = line_begins_, .prose = prose_}, config_->tools)
               : FoundForm();
  const std::string& close = format().content_close;
  const std::size_t end = close.empty() ? kNowhere : held_.find(close);
  if (end < std::min(found.at, native.at)) {
    EmitPart(Part::kText, end, out);
    held_.erase(0, close.size());
    return true;
  }
  if (found.at < native.at) {
    // The white space before the text is held, too, and emitted if it is no call.
    const std::size_t space = SpaceAtEnd(std::string_view(held_).substr(0, found.at));
    const bool part = found.part || native.keep >= held_.size() - found.at;
    EmitPart(Part::kText, found.at - space, out);
    if (part) return false;  // the opening is not complete, or may become the template's
    BeginCandidate(false);
    return true;
  }
  if (native.at != kNowhere) {
    EmitPart(Part::kText, native.at - SpaceAtEnd(std::string_view(held_).substr(0, native.at)),
             out);
    held_.erase(0, held_.find(format().calls.trigger));
    state_ = State::kCalls;
    return true;
  }
  native.keep = std::max(native.keep, Overlap(held_, close));
  if (lenient_) native.keep = std::max(native.keep, SpaceAtEnd(held_));
  EmitPart(Part::kText, held_.size() - native.keep, out);
  return false;
}

void OutputParser::BeginCandidate(bool native) {
  lenient_calls_.Begin({.begins = !text_emitted_ && !config_->continues,
                        .native = native,
                        .further = calls_.count() > 0});
  native_candidate_ = native;
  state_ = State::kCandidate;
}

// The held text is no call.
void OutputParser::LeaveCandidate(std::vector<MessagePart>& out) {
  lenient_ = false;
  state_ = State::kText;
  if (!native_candidate_ || calls_.count() > 0) return;
  // The search for calls continues behind the template's mark.
  EmitPart(Part::kText, std::min(format().calls.trigger.size(), held_.size()), out);
}

bool OutputParser::StepCandidate(std::vector<MessagePart>& out) {
  if (lenient_calls_.Push(held_, calls_, out) != Taken::kNo) return false;
  LeaveCandidate(out);
  return true;
}

void OutputParser::FinishCandidate(bool cut, std::vector<MessagePart>& out) {
  lenient_calls_.Finish(cut ? TextEnd::kCut : TextEnd::kEnded, held_, calls_, out);
  if (held_.empty()) return;
  LeaveCandidate(out);
  while (!held_.empty() && Step(out)) continue;
  Finish(cut, out);
}

// Records that the first held `bytes` become text.
void OutputParser::CountProse(std::size_t bytes) {
  const std::string_view text = std::string_view(held_).substr(0, bytes);
  const std::size_t line = text.rfind('\n');
  const std::string_view last = line == kNowhere ? text : text.substr(line + 1);
  const bool blank = last.find_first_not_of(kSpace) == kNowhere;
  line_begins_ = blank && (line != kNowhere || line_begins_);
  prose_ += bytes;
}

bool OutputParser::StepCalls(std::vector<MessagePart>& out) {
  const CallParser::Outcome outcome = calls_.Push(held_, out);
  if (outcome == CallParser::Outcome::kMore) return false;
  if (outcome == CallParser::Outcome::kLost) {
    LoseCall(out);
  } else if (config_->lenient) {
    BeginCandidate(true);  // further calls may follow in another form
  } else {
    state_ = State::kBehindCalls;
  }
  return true;
}

// The text is no call in the template's form, or no further one: it may be one with other white
// space or marks, and otherwise is text.
void OutputParser::LoseCall(std::vector<MessagePart>& out) {
  held_.insert(0, calls_.TakeBack());
  if (config_->lenient && ++lost_ <= kLostCallsMax) return BeginCandidate(true);
  native_candidate_ = true;
  LeaveCandidate(out);
}

// Parses "<|channel|>commentary to=functions.f <|constrain|>json<|message|>", also with the
// recipient before the channel.
bool OutputParser::StepHeader(std::vector<MessagePart>& out) {
  const std::string_view mark = "<|message|>";
  const std::size_t at = held_.find(mark);
  if (at == kNowhere) return false;
  const std::string header = held_.substr(0, at);
  held_.erase(0, at + mark.size());
  channel_ = header.find("analysis") != kNowhere ? Part::kReasoning : Part::kText;
  const std::string_view to = "to=functions.";
  const std::size_t name = header.find(to);
  to_tool_ = config_->calls && name != kNowhere;
  if (to_tool_) {
    const std::size_t begin = name + to.size();
    calls_.BeginCall(header.substr(begin, header.find_first_of(" <", begin) - begin), out);
  }
  state_ = State::kMessage;
  return true;
}

bool OutputParser::StepMessage(std::vector<MessagePart>& out) {
  std::size_t at = kNowhere, behind = 0, keep = 0;
  for (const std::string_view mark : {"<|end|>", "<|call|>", "<|return|>", "<|start|>"}) {
    const std::size_t found = held_.find(mark);
    keep = std::max(keep, Overlap(held_, mark));
    if (found >= at) continue;
    at = found;
    behind = found + mark.size();
  }
  const std::size_t size = at == kNowhere ? held_.size() - keep : at;
  if (to_tool_) {
    calls_.AddArguments(held_.substr(0, size), out);
    held_.erase(0, size);
  } else {
    EmitPart(channel_, size, out);
  }
  if (at == kNowhere) return false;
  held_.erase(0, behind - size);
  state_ = State::kHeader;
  return true;
}

// Emits the first `bytes` of the held text.
void OutputParser::EmitPart(MessagePart::Kind kind, std::size_t bytes,
                            std::vector<MessagePart>& out) {
  if (bytes == 0) return;
  if (kind == Part::kText) CountProse(bytes);
  if (kind == Part::kText) text_emitted_ = text_emitted_ || held_.find_first_not_of(kSpace) < bytes;
  if (!out.empty() && out.back().kind == kind) {
    out.back().text.append(held_, 0, bytes);
  } else {
    out.push_back({.kind = kind, .text = held_.substr(0, bytes)});
  }
  held_.erase(0, bytes);
}

}  // namespace thermocline::chat
