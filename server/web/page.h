// Files from server/web that are compiled into the program.
#pragma once

#include <string_view>

namespace thermocline::web {
// The chat page: index.html with the styles and scripts of page/ inlined. It loads no other files.
extern const std::string_view kPage;
extern const std::string_view kPageStyleHash;   // "sha256-...", for its Content-Security-Policy
extern const std::string_view kPageScriptHash;  // the same
extern const std::string_view kOpenApi;         // openapi.json, the description of the HTTP API
}  // namespace thermocline::web
