// Text inside of HTML and SVG.
#pragma once

#include <string>
#include <string_view>

namespace thermocline::charts {

// Text for elements and quoted attributes: markup, control characters and ill-formed UTF-8 are made
// harmless.
std::string EscapeMarkup(std::string_view text);

}  // namespace thermocline::charts
