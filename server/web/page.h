// Files that are part of the program, from server/web.
#pragma once

#include <string_view>

namespace thermocline::web {
extern const std::string_view kPage;     // index.html: the chat page, nothing from elsewhere
extern const std::string_view kOpenApi;  // openapi.json: the HTTP API described
}  // namespace thermocline::web
