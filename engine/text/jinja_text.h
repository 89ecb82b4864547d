// String helpers with Python's meaning.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/text/jinja_value.h"

namespace thermocline::text::jinja {

// Without `characters` (white space if nullptr) at the sides asked for.
std::string Strip(std::string_view text, const std::string* characters, bool left, bool right);
// At most `count_max` cuts, all if negative.
std::vector<std::string> SplitAt(const std::string& text, const std::string& separator,
                                 std::int64_t count_max, bool from_right);
std::vector<std::string> SplitWords(const std::string& text, std::int64_t count_max);
// ResourceExhausted if the result would exceed 16 MiB.
Result<Value> ReplaceText(const std::string& text, const std::string& from, const std::string& to,
                          std::int64_t count_max);
// HTML's escapes, unless the value is marked safe.
std::string EscapeHtml(const Value& value);
std::string Upper(std::string_view text);
std::string Lower(std::string_view text);
std::string Title(std::string_view text);
std::string Capitalize(std::string_view text);

}  // namespace thermocline::text::jinja
