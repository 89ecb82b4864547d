// A daemon that serves as long as one agent runs.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/status.h"

namespace thermocline::tools {

// The configuration of such a daemon.
struct DaemonSettings {
  std::string model;                  // a path, or the name of a built-in model
  std::string cache = {};             // folder of prefixes on flash; "" = none
  std::vector<std::string> set = {};  // further settings: "section.key=value"
};

// Its command without an address. It takes any name for its model, and has no gRPC, whose port a
// second daemon could not open.
std::vector<std::string> DaemonCommand(const DaemonSettings& settings);

// Ends the daemon when destroyed, and waits for its end.
class OwnDaemon {
 public:
  // Starts the daemon beside this program on a free port of loopback. Its log goes to a new file in
  // the folder for temporary files. Errors as StartProgram, ListeningSocket::Tcp.
  static Result<std::unique_ptr<OwnDaemon>> Start(const DaemonSettings& settings);
  ~OwnDaemon();
  OwnDaemon(const OwnDaemon&) = delete;
  OwnDaemon& operator=(const OwnDaemon&) = delete;

  const std::string& url() const { return url_; }
  const std::string& log_path() const { return log_path_; }
  // FailedPrecondition, with the end of its log, if it has ended by itself.
  Status CheckRunning();

 private:
  OwnDaemon(std::string url, std::string log_path)
      : url_(std::move(url)), log_path_(std::move(log_path)) {}

  const std::string url_, log_path_;
  pid_t pid_ = -1;
  std::optional<int> exit_status_ = std::nullopt;
};

}  // namespace thermocline::tools
