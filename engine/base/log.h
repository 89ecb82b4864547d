// Logging for people and machines; goes to stderr. Never log prompts or completions.
#pragma once

#include <string>
#include <string_view>

#include "engine/base/json.h"
#include "engine/base/status.h"

namespace thermocline::base {

enum class LogLevel { kDebug, kInfo, kWarning, kError, kOff };

// Thread-safe. `json` writes one object a line instead of text.
void ConfigureLog(LogLevel level, bool json);
Result<LogLevel> ParseLogLevel(std::string_view name);  // debug, info, warning, error, off

void Log(LogLevel level, std::string_view message);
// With members of their own in JSON, as name=value in text.
void Log(LogLevel level, std::string_view message, const Json::Object& fields);
template <typename... Pieces>
void LogInfo(const Pieces&... pieces) {
  Log(LogLevel::kInfo, StrCat(pieces...));
}
template <typename... Pieces>
void LogWarning(const Pieces&... pieces) {
  Log(LogLevel::kWarning, StrCat(pieces...));
}
template <typename... Pieces>
void LogError(const Pieces&... pieces) {
  Log(LogLevel::kError, StrCat(pieces...));
}

}  // namespace thermocline::base
