// Strings in quotes with backslash escapes, as some call formats write them.
#pragma once

#include <string>
#include <string_view>

#include "server/chat/json_scan.h"

namespace thermocline::chat {

// The text of a quoted string, with its escapes resolved.
inline std::string Unquoted(const std::string& text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\' || i + 1 == text.size()) {
      out.push_back(text[i]);
      continue;
    }
    const char c = text[++i];
    out.push_back(c == 'n' ? '\n' : c == 't' ? '\t' : c == 'r' ? '\r' : c);
  }
  return out;
}

// Returns the number of backslashes at the end of `text`.
inline std::size_t SlashesAtEnd(std::string_view text) {
  const std::size_t last = text.find_last_not_of('\\');
  return last == kNowhere ? text.size() : text.size() - last - 1;
}

// The position of the first unescaped `quote`, or npos.
inline std::size_t EndOfQuoted(const std::string& text, char quote) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\') {
      ++i;
    } else if (text[i] == quote) {
      return i;
    }
  }
  return kNowhere;
}

}  // namespace thermocline::chat
