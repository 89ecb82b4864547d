// Finds the end of a JSON object or list that arrives in pieces.
#pragma once

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
    if (c == '{' || c == '[') ++depth_;
    if (c == '}' || c == ']') --depth_;
    return depth_ == 0;
  }

 private:
  bool in_string_ = false, escaped_ = false;
  int depth_ = 0;
};

// The position after the value that begins at `at`; npos if the value is incomplete.
inline std::size_t EndOfJson(std::string_view text, std::size_t at) {
  JsonScan scan;
  for (std::size_t i = at; i < text.size(); ++i)
    if (scan.Push(text[i])) return i + 1;
  return std::string_view::npos;
}

}  // namespace thermocline::chat
