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

// Thread-safe. `json` writes one object per line instead of text.
void ConfigureLog(LogLevel level, bool json);
Result<LogLevel> ParseLogLevel(std::string_view name);  // debug, info, warning, error, off

// From now on a separate thread writes the lines, so that no thread waits for a slow reader of
// stderr. Lines that the reader does not take are dropped (log_writer.h).
void StartLogThread();
// Waits until all lines so far are written, but at most for `most`.
void FlushLog(std::chrono::milliseconds most);
std::int64_t DroppedLogLines();

void Log(LogLevel level, std::string_view message);
// `fields` become members of their own in JSON, and name=value in text.
void Log(LogLevel level, std::string_view message, const Json::Object& fields);
// Drops the message if there is no memory for it.
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
