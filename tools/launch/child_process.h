// Other programs, started without a shell.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "engine/base/status.h"
#include "tools/launch/agent.h"

namespace thermocline::tools {

// The path of a program, searched in PATH as a shell does; "" = not found. A name with a '/' is a
// path already.
std::string PathOfProgram(const std::string& name);

// The difference between a background service and a program that has this terminal.
struct ServiceFiles {
  int listening_socket;  // passed as systemd does: sd_listen_fds(3)
  int log;               // its standard output and error
};

struct ProgramStart {
  std::vector<std::string> command;      // the first one is a path
  std::vector<Variable> variables = {};  // replace those of this process
  // A service has a process group of its own, so that Ctrl-C does not reach it, and is ended by
  // SIGTERM if this process dies.
  std::optional<ServiceFiles> service = std::nullopt;
};

// Starts a program. NotFound, PermissionDenied or Unavailable, with its path, if that fails.
Result<pid_t> StartProgram(const ProgramStart& start);

// The exit status of a child process as a shell has it, 128 + N for signal N; nullopt while it
// runs.
std::optional<int> ExitStatusOf(pid_t pid);

}  // namespace thermocline::tools
