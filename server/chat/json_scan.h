// Finds the end of a JSON object or list that arrives in pieces.
#pragma once

#include <string>
#include <string_view>

namespace thermocline::chat {

inline constexpr std::size_t kNowhere = std::string_view::npos;

class JsonScan {
 public:
  // Takes the next byte; returns true if it ends the value that began with the first bracket.
  bool Push(char c) {
    if (in_string_) {
      if (escaped_) {
        escaped_ = false;
      } else if (c == '\\') {
        escaped_ = true;
      } else if (c == '"') {
        in_string_ = false;
      }
      return false;
    }
    if (c == '"') in_string_ = true;
    if (c == '{') closing_.push_back('}');
    if (c == '[') closing_.push_back(']');
    if ((c == '}' || c == ']') && !closing_.empty()) closing_.pop_back();
    return closing_.empty();
  }

  // The brackets that close the value; "" if a string is open, which none can close.
  std::string Closing() const {
    return in_string_ ? "" : std::string(closing_.rbegin(), closing_.rend());
  }

 private:
  bool in_string_ = false, escaped_ = false;
  std::string closing_;  // the missing brackets, the last one first
};

// The position after the value that begins at `at`; npos if the value is incomplete.
inline std::size_t EndOfJson(std::string_view text, std::size_t at) {
  JsonScan scan;
  for (std::size_t i = at; i < text.size(); ++i)
    if (scan.Push(text[i])) return i + 1;
  return std::string_view::npos;
}

}  // namespace thermocline::chat
