// String helpers with Python's semantics. A character derived from another keeps its origin.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/text/jinja_value.h"

namespace thermocline::text::jinja {

// As std::string::find, in time linear in both texts, which a template's author chooses.
std::size_t FindText(std::string_view text, std::string_view needle, std::size_t from = 0);
// As std::string::rfind; npos, and the walk is refused, if that would take too long.
std::size_t FindLastText(std::string_view text, std::string_view needle);

// Removes `characters` (white space if nullptr) at the given sides.
TemplateText Strip(const TemplateText& text, const std::string* characters, bool left, bool right);
using TextParts = std::vector<TemplateText, CountedAllocator<TemplateText>>;
// Makes at most `count_max` splits, or all if it is negative.
TextParts SplitAt(const TemplateText& text, const std::string& separator, std::int64_t count_max,
                  bool from_right);
TextParts SplitWords(const TemplateText& text, std::int64_t count_max);
// ResourceExhausted if the result would exceed 16 MiB.
Result<Value> ReplaceText(const TemplateText& text, const std::string& from, const TemplateText& to,
                          std::int64_t count_max);
// HTML's escapes, unless the value is marked safe.
TemplateText EscapeHtml(const Value& value);
TemplateText Upper(const TemplateText& text);
TemplateText Lower(const TemplateText& text);
TemplateText Title(const TemplateText& text);
TemplateText Capitalize(const TemplateText& text);

}  // namespace thermocline::text::jinja
