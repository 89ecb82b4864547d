// The chat page, one file without anything from elsewhere. Its text is server/web/index.html.
#pragma once

#include <string_view>

namespace thermocline::web {
extern const std::string_view kPage;
}
