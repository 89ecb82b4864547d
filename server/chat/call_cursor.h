// A position in a text that may be calls, for the parsers of lenient forms.
#pragma once

#include <algorithm>
#include <string_view>

#include "server/chat/json_scan.h"

namespace thermocline::chat {

inline constexpr std::string_view kBlank = " \t\r\n";

// The outcome of one parsing step. kMore: the text ends too early; kNo: the text is no call.
enum class Taken { kDone, kMore, kNo };
// kOpen: more text may follow; kEnded: the model ended its answer; kCut: a limit ended it.
enum class TextEnd { kOpen, kEnded, kCut };

// Thread-compatible. The text must outlive it.
class CallCursor {
 public:
  CallCursor(std::string_view text, TextEnd end) : text_(text), end_(end) {}

  std::size_t at() const { return at_; }
  bool at_end() const { return at_ >= text_.size(); }
  // True if the model ended the answer, so that missing brackets may be added.
  bool closes() const { return end_ == TextEnd::kEnded; }
  // Requires: !at_end().
  char Peek() const { return text_[at_]; }
  std::string_view Rest() const { return text_.substr(at_); }
  std::string_view From(std::size_t begin) const { return text_.substr(begin, at_ - begin); }
  void Skip(std::size_t bytes) { at_ = std::min(at_ + bytes, text_.size()); }
  void SkipSpace() { SkipAny(kBlank); }
  void SkipAny(std::string_view characters) {
    at_ = std::min(text_.find_first_not_of(characters, at_), text_.size());
  }

  // The outcome where the text ends before a call does.
  Taken Missing() const { return end_ == TextEnd::kOpen ? Taken::kMore : Taken::kNo; }

  Taken Take(std::string_view literal) {
    const std::string_view rest = Rest();
    if (rest.starts_with(literal)) {
      Skip(literal.size());
      return Taken::kDone;
    }
    return literal.starts_with(rest) ? Missing() : Taken::kNo;
  }

  // Takes the text before `mark`, and the mark; `bytes_max` limits the text.
  Taken TakeUntil(std::string_view mark, std::size_t bytes_max, std::string_view& out) {
    const std::string_view rest = Rest();
    const std::size_t end = rest.find(mark);
    if (std::min(end, rest.size()) > bytes_max) return Taken::kNo;
    if (end == kNowhere) return Missing();
    out = rest.substr(0, end);
    Skip(end + mark.size());
    return Taken::kDone;
  }

 private:
  const std::string_view text_;
  const TextEnd end_;
  std::size_t at_ = 0;
};

}  // namespace thermocline::chat
