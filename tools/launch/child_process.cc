#include "tools/launch/child_process.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string_view>

#include "engine/base/posix_error.h"

extern char** environ;  // NOLINT(readability-redundant-declaration)

namespace thermocline::tools {
namespace {

constexpr int kFirstPassedSocket = 3;  // sd_listen_fds(3)
constexpr const char* kListenPid = "LISTEN_PID";
constexpr std::size_t kPidDigits = 20;

// The environment of this process with the variables of `start`. That of a service ends with
// LISTEN_PID, behind which the child writes its number: it is not known before the fork.
std::vector<std::string> EnvironmentOf(const ProgramStart& start) {
  std::vector<Variable> changed = start.variables;
  if (start.service.has_value()) {
    changed.push_back({"LISTEN_FDS", "1"});
    changed.push_back({kListenPid, std::string(kPidDigits, '\0')});
  }
  std::vector<std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::string_view name = text.substr(0, text.find('='));
    const auto replaces = [&](const Variable& variable) { return variable.name == name; };
    if (std::none_of(changed.begin(), changed.end(), replaces)) environment.emplace_back(text);
  }
  for (const Variable& variable : changed)
    environment.push_back(StrCat(variable.name, "=", variable.value));
  return environment;
}

std::vector<char*> PointersTo(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  pointers.reserve(texts.size() + 1);
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// Makes the child a service. Between fork and exec, so only calls that a signal handler may make.
bool BecomeService(const ServiceFiles& files, pid_t parent, char* digits) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != parent) return false;  // it has died before the call
  const int nothing = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (nothing < 0 || ::dup2(nothing, STDIN_FILENO) < 0) return false;
  if (::dup2(files.log, STDOUT_FILENO) < 0 || ::dup2(files.log, STDERR_FILENO) < 0) return false;
  const bool in_place = files.listening_socket == kFirstPassedSocket;
  if (in_place && ::fcntl(kFirstPassedSocket, F_SETFD, 0) != 0) return false;
  if (!in_place && ::dup2(files.listening_socket, kFirstPassedSocket) < 0) return false;
  std::to_chars(digits, digits + kPidDigits, ::getpid());
  return true;
}

// Returns the errno of an exec that failed, which the child writes; 0 when the program runs.
int ErrorOfExec(int pipe) {
  int error = 0;
  ssize_t bytes = 0;
  while ((bytes = ::read(pipe, &error, sizeof(error))) < 0 && errno == EINTR) {
  }
  return bytes == sizeof(error) ? error : 0;
}

}  // namespace

std::string PathOfProgram(const std::string& name) {
  const auto runs = [](const std::string& path) {
    std::error_code error;
    return std::filesystem::is_regular_file(path, error) && ::access(path.c_str(), X_OK) == 0;
  };
  if (name.find('/') != std::string::npos) return runs(name) ? name : "";
  const char* variable = std::getenv("PATH");
  const std::string folders = variable != nullptr ? variable : "/usr/local/bin:/usr/bin:/bin";
  for (std::size_t begin = 0; begin <= folders.size();) {
    const std::size_t end = std::min(folders.find(':', begin), folders.size());
    const std::string folder = folders.substr(begin, end - begin);
    const std::string path = StrCat(folder.empty() ? "." : folder, "/", name);
    if (runs(path)) return path;
    begin = end + 1;
  }
  return "";
}

Result<pid_t> StartProgram(const ProgramStart& start) {
  std::vector<std::string> words = start.command, environment = EnvironmentOf(start);
  const std::vector<char*> argv = PointersTo(words), envp = PointersTo(environment);
  int pipe[2];
  if (::pipe2(pipe, O_CLOEXEC) != 0) return base::ErrnoStatus(words[0], "start", errno);
  const pid_t parent = ::getpid();
  char* const listen_pid =
      start.service.has_value() ? environment.back().data() + std::strlen(kListenPid) + 1 : nullptr;
  const pid_t pid = ::fork();
  if (pid == 0) {
    if (!start.service.has_value() || BecomeService(*start.service, parent, listen_pid))
      ::execve(argv[0], argv.data(), envp.data());
    const int error = errno;
    [[maybe_unused]] const ssize_t written = ::write(pipe[1], &error, sizeof(error));
    ::_exit(127);
  }
  const int fork_error = errno;
  ::close(pipe[1]);
  const int error = pid < 0 ? fork_error : ErrorOfExec(pipe[0]);
  ::close(pipe[0]);
  if (error == 0) return pid;
  if (pid > 0) ::waitpid(pid, nullptr, 0);
  return base::ErrnoStatus(words[0], "start", error);
}

std::optional<int> ExitStatusOf(pid_t pid) {
  int status = 0;
  if (::waitpid(pid, &status, WNOHANG) == 0) return std::nullopt;
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace thermocline::tools
