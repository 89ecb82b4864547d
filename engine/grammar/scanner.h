// Reads a notation character by character, and reports positions in messages.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "engine/base/status.h"

namespace thermocline::grammar {

// Thread-compatible. `text` is well-formed UTF-8 and must live as long.
class Scanner {
 public:
  Scanner(std::string_view what, std::string_view text) : what_(what), text_(text) {}

  bool done() const { return at_ >= text_.size(); }
  std::size_t at() const { return at_; }
  void MoveTo(std::size_t at) { at_ = at; }
  char Peek(std::size_t ahead = 0) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0';
  }
  bool Take(std::string_view expected) {
    if (text_.substr(at_, expected.size()) != expected) return false;
    at_ += expected.size();
    return true;
  }
  // Requires: not done().
  char32_t TakeCharacter() { return base::DecodeUtf8(text_, at_); }
  // Reads exactly `digits` hexadecimal digits.
  std::optional<char32_t> TakeHex(int digits) {
    char32_t value = 0;
    for (int i = 0; i < digits; ++i) {
      const int digit = HexValue(Peek(i));
      if (digit < 0) return std::nullopt;
      value = value * 16 + static_cast<char32_t>(digit);
    }
    at_ += digits;
    return value;
  }
  // Decimal digits as a number; nullopt if there are none or the number is above `max`.
  std::optional<int> TakeNumber(int max) {
    const std::size_t begin = at_;
    while (Peek() >= '0' && Peek() <= '9') ++at_;
    const auto value = base::ParseNumber<int>(text_.substr(begin, at_ - begin));
    return value.has_value() && *value <= max ? value : std::nullopt;
  }
  std::string_view Slice(std::size_t begin) const { return text_.substr(begin, at_ - begin); }

  // InvalidArgument that states the position.
  template <typename... Pieces>
  Status Fail(const Pieces&... pieces) const {
    std::size_t line = 1, column = 1;
    for (std::size_t i = 0; i < at_ && i < text_.size(); ++i) {
      column = text_[i] == '\n' ? 1 : column + 1;
      if (text_[i] == '\n') ++line;
    }
    return base::InvalidArgument(what_, ", line ", line, ", column ", column, ": ", pieces...);
  }

 private:
  static int HexValue(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
  }

  std::string_view what_, text_;
  std::size_t at_ = 0;
};

}  // namespace thermocline::grammar
