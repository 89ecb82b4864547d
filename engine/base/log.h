// Logging for people and machines; goes to stderr. Never log prompts or completions.
#pragma once

#include <chrono>
#include <cstdint>
#include <new>
#include <string>
#include <string_view>

#include "engine/base/json.h"
#include "engine/base/status.h"

namespace thermocline::base {

enum class LogLevel { kDebug, kInfo, kWarning, kError, kOff };

// Thread-safe. `json` writes one object a line instead of text.
void ConfigureLog(LogLevel level, bool json);
Result<LogLevel> ParseLogLevel(std::string_view name);  // debug, info, warning, error, off

// Lines are written on a thread of its own from now on: nobody waits for who reads them, and what
// they do not read is dropped (log_writer.h).
void StartLogThread();
// Waits until what was logged is written, `most` at the longest.
void FlushLog(std::chrono::milliseconds most);
std::int64_t DroppedLogLines();

void Log(LogLevel level, std::string_view message);
// With members of their own in JSON, as name=value in text.
void Log(LogLevel level, std::string_view message, const Json::Object& fields);
// Says nothing where there is no memory to say it.
template <typename... Pieces>
void LogPieces(LogLevel level, const Pieces&... pieces) {
  try {
    Log(level, StrCat(pieces...));
  } catch (const std::bad_alloc&) {
    return;
  }
}
template <typename... Pieces>
void LogInfo(const Pieces&... pieces) {
  LogPieces(LogLevel::kInfo, pieces...);
}
template <typename... Pieces>
void LogWarning(const Pieces&... pieces) {
  LogPieces(LogLevel::kWarning, pieces...);
}
template <typename... Pieces>
void LogError(const Pieces&... pieces) {
  LogPieces(LogLevel::kError, pieces...);
}

}  // namespace thermocline::base
