// Files that are part of the program, from server/web.
#pragma once

#include <string_view>

namespace thermocline::web {
// The chat page: index.html with the styles and scripts of page/ in it, nothing from elsewhere.
extern const std::string_view kPage;
extern const std::string_view kPageStyleHash;   // "sha256-...", for its Content-Security-Policy
extern const std::string_view kPageScriptHash;  // the same
extern const std::string_view kOpenApi;         // openapi.json: the HTTP API described
}  // namespace thermocline::web
