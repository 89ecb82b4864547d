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

inline bool IsRole(const Json& message, std::string_view role) {
  return TextOf(message.Find("role")) == role;
}

}  // namespace thermocline::chat
