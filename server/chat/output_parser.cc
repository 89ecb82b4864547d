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

// White space at the end, which belongs to a marker that may follow.
std::size_t SpaceAtEnd(std::string_view text) {
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
      break;
    case State::kCandidate:
      FinishCandidate(cut, out);
      break;
    case State::kCalls:
      // The arguments of an announced call end here; a text that did not become a call is text.
      if (calls_.count() == 0) held_.insert(0, call_text_);
      if (calls_.count() == 0) EmitPart(Part::kText, held_.size(), out);
      calls_.Finish(held_, out);
      break;
    default:
      EmitPart(Part::kText, held_.size(), out);
  }
  held_.clear();
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
      return StepCandidate();
    case State::kCalls:
      return StepCalls(out);
    case State::kHeader:
      return StepHeader(out);
    case State::kMessage:
      return StepMessage(out);
  }
  return false;
}

// Before the first word, reasoning or the text's mark may begin.
bool OutputParser::StepStart() {
  const std::size_t begin = held_.find_first_not_of(kSpace);
  if (begin == kNowhere) return false;
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

bool OutputParser::StepText(std::vector<MessagePart>& out) {
  const CallFormat& calls = format().calls;
  std::size_t at = kNowhere, keep = 0;
  if (config_->calls && calls.known()) {
    if (!calls.at_start) {
      at = held_.find(calls.trigger);
      keep = Overlap(held_, calls.trigger);
      if (at == kNowhere && keep > 0)
        keep += SpaceAtEnd(std::string_view(held_).substr(0, held_.size() - keep));
      if (keep == 0) keep = SpaceAtEnd(held_);
    } else if (!text_emitted_) {
      const std::size_t begin = held_.find_first_not_of(kSpace);
      if (begin == kNowhere) return false;
      const Fit fit = Begins(std::string_view(held_).substr(begin), calls.trigger);
      if (fit == Fit::kPart) return false;
      if (fit == Fit::kWhole) at = begin;
    }
  }
  const std::size_t lenient = FindLenient();
  if (lenient < at) {
    // The white space before the candidate is held, too, and emitted if the candidate is text.
    EmitPart(Part::kText, lenient - SpaceAtEnd(std::string_view(held_).substr(0, lenient)), out);
    state_ = State::kCandidate;
    return true;
  }
  if (at != kNowhere) {
    EmitPart(Part::kText, at - SpaceAtEnd(std::string_view(held_).substr(0, at)), out);
    held_.erase(0, held_.find_first_not_of(kSpace));
    state_ = State::kCalls;
    return true;
  }
  const std::string& close = format().content_close;
  const std::size_t end = close.empty() ? kNowhere : held_.find(close);
  if (end != kNowhere) {
    EmitPart(Part::kText, end, out);
    held_.erase(0, close.size());
    return true;
  }
  keep = std::max(keep, Overlap(held_, close));
  EmitPart(Part::kText, held_.size() - keep, out);
  return false;
}

std::size_t OutputParser::FindLenient() const {
  if (!lenient_) return kNowhere;
  return FindCandidate(held_, {.begin = line_begins_, .prose = prose_});
}

bool OutputParser::StepCandidate() {
  const std::size_t begin = std::min(held_.find_first_not_of(kSpace), held_.size());
  if (MayBecomeCalls(std::string_view(held_).substr(begin), config_->tools)) return false;
  lenient_ = false;
  state_ = State::kText;
  return true;
}

void OutputParser::FinishCandidate(bool cut, std::vector<MessagePart>& out) {
  const LenientCalls found = ParseLenientCalls(held_, config_->tools, cut);
  rejected_ = found.rule;
  if (found.calls.empty()) return EmitPart(Part::kText, held_.size(), out);
  form_ = found.form;
  for (const ToolCall& call : found.calls) {
    if (calls_.count() > 0 && !config_->parallel) return;
    calls_.BeginCall(call.name, out);
    calls_.AddArguments(call.arguments, out);
  }
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
  const std::string before = held_;
  const CallParser::Outcome outcome = calls_.Push(held_, out);
  call_text_.append(before, 0, before.size() - held_.size());
  if (outcome == CallParser::Outcome::kMore) return false;
  if (outcome == CallParser::Outcome::kEnded) {
    held_.clear();  // only the answer's end may follow
    return false;
  }
  // The trigger came without a call, so it is text.
  if (calls_.count() == 0) held_.insert(0, call_text_);
  EmitPart(Part::kText, held_.size(), out);
  state_ = State::kText;
  return false;
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
