// The members of a message in OpenAI's shape.
#pragma once

#include <string>
#include <string_view>

#include "engine/base/json.h"

namespace thermocline::chat {

// "" of a value that is no string, or of none.
inline std::string TextOf(const Json* value) {
  return value != nullptr && value->is_string() ? value->as_string() : "";
}

// Adds to the message's text, with `between` if it has one. In place: messages of thousands of
// parts are joined by this.
inline void AppendContent(Json& message, std::string_view between, std::string_view text) {
  Json* content = message.FindRaw("content");
  if (content == nullptr || !content->is_string()) return message.Set("content", text);
  std::string& all = content->string();
  if (!all.empty()) all += between;
  all += text;
}

inline bool IsRole(const Json& message, std::string_view role) {
  return TextOf(message.Find("role")) == role;
}

}  // namespace thermocline::chat
