#include "engine/base/piped_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "engine/base/posix_error.h"

extern char** environ;  // NOLINT(readability-redundant-declaration)

namespace thermocline::base {

Result<std::unique_ptr<PipedProcess>> PipedProcess::Start(const std::vector<std::string>& words,
                                                          Errors errors) {
  int pipe_fds[2];
  if (::pipe2(pipe_fds, O_CLOEXEC) != 0) return ErrnoStatus(words[0], "start", errno);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, pipe_fds[1], STDOUT_FILENO);
  if (errors == Errors::kWithOutput)
    ::posix_spawn_file_actions_adddup2(&actions, pipe_fds[1], STDERR_FILENO);
  // Signals that this process has blocked or ignores are as usual for the program.
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  sigset_t none, all;
  ::sigemptyset(&none);
  ::sigfillset(&all);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setsigdefault(&attributes, &all);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  std::vector<char*> argv;
  argv.reserve(words.size() + 1);
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  pid_t pid = 0;
  const int error = ::posix_spawn(&pid, argv[0], &actions, &attributes, argv.data(), environ);
  ::posix_spawnattr_destroy(&attributes);
  ::posix_spawn_file_actions_destroy(&actions);
  ::close(pipe_fds[1]);
  if (error == 0) return std::unique_ptr<PipedProcess>(new PipedProcess(pid, pipe_fds[0]));
  ::close(pipe_fds[0]);
  return ErrnoStatus(words[0], "start", error);
}

PipedProcess::~PipedProcess() {
  Kill();
  (void)Wait();
  ::close(output_);
}

void PipedProcess::Limit(std::uint64_t bytes, unsigned cpu_seconds) {
  const MutexLock lock(mutex_);
  if (pid_ <= 0) return;
  const rlimit memory{bytes, bytes}, time{cpu_seconds, cpu_seconds};
  ::prlimit(pid_, RLIMIT_DATA, &memory, nullptr);
  ::prlimit(pid_, RLIMIT_CPU, &time, nullptr);
  constexpr int kNiceness = 19;
  ::setpriority(PRIO_PROCESS, static_cast<id_t>(pid_), kNiceness);
}

bool PipedProcess::WaitForOutput(std::chrono::milliseconds most) const {
  pollfd output{.fd = output_, .events = POLLIN, .revents = 0};
  return ::poll(&output, 1, static_cast<int>(most.count())) > 0;
}

std::string PipedProcess::Read() {
  std::array<char, 4096> buffer{};
  ssize_t n = 0;
  do {
    n = ::read(output_, buffer.data(), buffer.size());
  } while (n < 0 && errno == EINTR);
  return {buffer.data(), n > 0 ? static_cast<std::size_t>(n) : 0};
}

void PipedProcess::Kill() {
  const MutexLock lock(mutex_);
  if (pid_ > 0) ::kill(pid_, SIGKILL);
}

int PipedProcess::Wait() {
  pid_t pid = 0;
  {
    const MutexLock lock(mutex_);
    pid = pid_;
  }
  if (pid == 0) return -1;
  // The program stays a zombie until its id is forgotten here, so that Kill meets no other one.
  siginfo_t info{};
  while (::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT) != 0 && errno == EINTR) {
  }
  const MutexLock lock(mutex_);
  pid_ = 0;
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace thermocline::base
