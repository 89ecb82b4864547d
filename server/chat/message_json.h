// Access to a message's members in OpenAI's format.
#pragma once

#include <string>
#include <string_view>

#include "engine/base/json_text.h"

namespace thermocline::chat {

using base::TextOf;

// Appends to the message's text, after `between` if the text is not empty. It works in place, since
// messages may have thousands of parts.
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
