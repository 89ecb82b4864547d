#include "engine/base/log.h"

#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <atomic>
#include <mutex>

#include "engine/base/json.h"
#include "engine/base/log_writer.h"
#include "engine/base/strings.h"

namespace thermocline::base {
namespace {

std::atomic<bool> log_json{false};

LogWriter& Writer() {
  static auto* const writer = new LogWriter(STDERR_FILENO);  // its thread may outlive all else
  return *writer;
}

class WriterSink final : public spdlog::sinks::base_sink<std::mutex> {
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    Writer().Push(std::string(line.data(), line.size()));
  }
  void flush_() override {}
};

spdlog::logger& Logger() {
  static const auto logger = [] {
    auto made = std::make_shared<spdlog::logger>("thermocline", std::make_shared<WriterSink>());
    made->set_pattern("%Y-%m-%dT%H:%M:%S.%e%z %l %v");
    return made;
  }();
  return *logger;
}

spdlog::level::level_enum LibraryLevel(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
    case LogLevel::kOff:
      return spdlog::level::off;
  }
  return spdlog::level::info;
}

}  // namespace

void ConfigureLog(LogLevel level, bool json) {
  Logger().set_level(LibraryLevel(level));
  Logger().set_pattern(json ? R"({"time":"%Y-%m-%dT%H:%M:%S.%e%z","level":"%l","message":%v})"
                            : "%Y-%m-%dT%H:%M:%S.%e%z %l %v");
  log_json = json;
}

Result<LogLevel> ParseLogLevel(std::string_view name) {
  if (name == "debug") return LogLevel::kDebug;
  if (name == "info") return LogLevel::kInfo;
  if (name == "warning") return LogLevel::kWarning;
  if (name == "error") return LogLevel::kError;
  if (name == "off") return LogLevel::kOff;
  return InvalidArgument("unknown log level '", name, "'; one of debug, info, warning, error, off");
}

void StartLogThread() { Writer().Start(); }
void FlushLog(std::chrono::milliseconds most) { Writer().Flush(most); }
std::int64_t DroppedLogLines() { return Writer().dropped(); }

void Log(LogLevel level, std::string_view message, const Json::Object& fields) {
  if (!log_json) {
    std::string text(message);
    for (const auto& [name, value] : fields)
      text += StrCat(" ", name, "=", value.is_string() ? value.as_string() : value.Dump());
    return Log(level, text);
  }
  std::string line;
  AppendJsonString(line, message);
  for (const auto& [name, value] : fields) {
    line += ",";
    AppendJsonString(line, name);
    line += ":" + value.Dump();
  }
  Logger().log(LibraryLevel(level), std::string_view(EscapeControls(line)));
}

void Log(LogLevel level, std::string_view message) {
  // A message may contain text from a file or a client: escaping control characters prevents forged
  // log lines.
  std::string line;
  AppendJsonString(line, message);
  line = EscapeControls(line);
  Logger().log(LibraryLevel(level), log_json ? std::string_view(line)
                                             : std::string_view(line).substr(1, line.size() - 2));
}

}  // namespace thermocline::base
