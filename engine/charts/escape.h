// Escaping of text in HTML and SVG.
#pragma once

#include <string>
#include <string_view>

namespace thermocline::charts {

// Escapes text for elements and quoted attributes: markup, control characters and ill-formed UTF-8.
std::string EscapeMarkup(std::string_view text);

}  // namespace thermocline::charts
