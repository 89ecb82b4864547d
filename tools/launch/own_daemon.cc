#include "tools/launch/own_daemon.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <thread>

#include "engine/base/file.h"
#include "engine/base/posix_error.h"
#include "server/net/address.h"
#include "server/net/listening_socket.h"
#include "tools/common/console.h"
#include "tools/launch/child_process.h"

namespace thermocline::tools {
namespace {

// The longest end of a daemon: it writes prefixes to flash. Longer than server.drain_timeout_s.
constexpr std::chrono::seconds kEndPatience{60};
constexpr std::chrono::milliseconds kEndPoll{20};

// A descriptor that is closed at the end.
class OwnedFd {
 public:
  explicit OwnedFd(int fd) : fd_(fd) {}
  ~OwnedFd() { ::close(fd_); }
  OwnedFd(const OwnedFd&) = delete;
  OwnedFd& operator=(const OwnedFd&) = delete;
  int get() const { return fd_; }

 private:
  const int fd_;
};

std::string LogPattern() {
  std::error_code error;
  const auto folder = std::filesystem::temp_directory_path(error);
  return (error ? "/tmp" : folder.string()) + "/thermocline-launch-XXXXXX.log";
}

// The last lines of a log.
std::string EndOfFile(const std::string& path) {
  constexpr std::size_t kLines = 5;
  const auto text = base::ReadFileToString(path);
  if (!text.ok()) return "";
  std::size_t begin = text->size();
  for (std::size_t line = 0; line <= kLines && begin > 0 && begin != std::string::npos; ++line)
    begin = text->rfind('\n', begin - 1);
  return text->substr(begin == std::string::npos ? 0 : begin);
}

}  // namespace

std::vector<std::string> DaemonCommand(const DaemonSettings& settings) {
  std::vector<std::string> keys = {"model.path=" + settings.model, "model.aliases=*",
                                   "grpc.address="};
  if (!settings.cache.empty()) keys.push_back("prefix_cache.path=" + settings.cache);
  keys.insert(keys.end(), settings.set.begin(), settings.set.end());
  std::vector<std::string> command = {DaemonPath()};
  for (const std::string& key : keys) command.insert(command.end(), {"--set", key});
  return command;
}

Result<std::unique_ptr<OwnDaemon>> OwnDaemon::Start(const DaemonSettings& settings) {
  ASSIGN_OR_RETURN(const auto sockets, net::ListeningSocket::Tcp("127.0.0.1", "0"));
  constexpr std::string_view kEnding = ".log";
  std::string log_path = LogPattern();
  const int fd = ::mkostemps(log_path.data(), kEnding.size(), O_CLOEXEC | O_APPEND);
  if (fd < 0) return base::ErrnoStatus(log_path, "create", errno);
  const OwnedFd log(fd);
  const int socket = sockets.front().fd();
  auto daemon = std::unique_ptr<OwnDaemon>(
      new OwnDaemon("http://" + net::LocalAddress(socket).Text(), std::move(log_path)));
  ASSIGN_OR_RETURN(
      daemon->pid_,
      StartProgram({.command = DaemonCommand(settings),
                    .service = ServiceFiles{.listening_socket = socket, .log = log.get()}}));
  return daemon;
}

OwnDaemon::~OwnDaemon() {
  if (pid_ < 0 || exit_status_.has_value()) return;
  ::kill(pid_, SIGTERM);
  const auto last = std::chrono::steady_clock::now() + kEndPatience;
  while (!(exit_status_ = ExitStatusOf(pid_)).has_value()) {
    if (std::chrono::steady_clock::now() > last) ::kill(pid_, SIGKILL);
    std::this_thread::sleep_for(kEndPoll);
  }
}

Status OwnDaemon::CheckRunning() {
  if (!exit_status_.has_value()) exit_status_ = ExitStatusOf(pid_);
  if (!exit_status_.has_value()) return OkStatus();
  return base::FailedPrecondition("the daemon has ended with status ", *exit_status_,
                                  "; its log is ", log_path_, EndOfFile(log_path_));
}

}  // namespace thermocline::tools
