// Texts in JSON values that others have written.
#pragma once

#include <string>
#include <string_view>

#include "engine/base/json.h"

namespace thermocline::base {

// The string; "" for other values and nullptr.
inline std::string TextOf(const Json* value) {
  return value != nullptr && value->is_string() ? value->as_string() : "";
}

// The member's string, likewise.
inline std::string TextOf(const Json& object, std::string_view key) {
  return TextOf(object.Find(key));
}

}  // namespace thermocline::base
