#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <optional>

#include "engine/base/file.h"
#include "engine/base/strings.h"
#include "engine/base/system_memory.h"
#include "engine/model/model_file.h"
#include "engine/model/open/builtin.h"
#include "engine/model/open/open_model.h"
#include "engine/store/device_probe.h"
#include "tools/doctor/checks.h"

extern char** environ;  // NOLINT(readability-redundant-declaration)

namespace thermocline::tools {
namespace {

// Runs a program to its end. Returns its output and exit code, or nullopt if it cannot be started.
struct Ran {
  int code = -1;
  std::string output;
};
std::optional<Ran> RunProgram(const std::vector<std::string>& words) {
  int pipe_fds[2];
  if (::pipe2(pipe_fds, O_CLOEXEC) != 0) return std::nullopt;
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, pipe_fds[1], STDOUT_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, pipe_fds[1], STDERR_FILENO);
  std::vector<char*> argv;
  argv.reserve(words.size() + 1);
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  pid_t pid = 0;
  const int error = ::posix_spawn(&pid, argv[0], &actions, nullptr, argv.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  ::close(pipe_fds[1]);
  Ran out;
  std::array<char, 4096> buffer{};
  for (ssize_t n; error == 0 && (n = ::read(pipe_fds[0], buffer.data(), buffer.size())) > 0;)
    out.output.append(buffer.data(), n);
  ::close(pipe_fds[0]);
  if (error != 0) return std::nullopt;
  int status = 0;
  ::waitpid(pid, &status, 0);
  out.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  while (!out.output.empty() && out.output.back() == '\n') out.output.pop_back();
  return out;
}

std::uint64_t FileBytes(const std::string& path) {
  std::error_code error;
  const auto size = std::filesystem::file_size(path, error);
  return error ? 0 : size;
}

}  // namespace

Finding CheckModel(const std::string& model) {
  const auto path = model::ResolveModel(model);
  if (!path.ok())
    return {"model", Verdict::kError, path.status().message(), "give the path of a model's file"};
  const auto file = model::OpenModelFile(*path);
  if (!file.ok())
    return {"model", Verdict::kError, file.status().message(),
            "download it again, or convert it with `thermocline convert`"};
  const auto bytes = static_cast<double>(FileBytes(*path));
  const auto allowed = static_cast<double>(base::MemoryAllowance());
  Finding out{.name = "model",
              .seen = StrCat(*path, ": ", (**file).format, ", ",
                             (**file).config.num_parameters() / 1'000'000, "M parameters, ",
                             base::HumanBytes(bytes)),
              .advice = ""};
  if (bytes > 0.9 * allowed && !base::PathExists(*path + ".tcb")) {
    out.verdict = Verdict::kWarning;
    out.advice = StrCat("it does not fit the ", base::HumanBytes(allowed),
                        " that may be used: `thermocline pack` writes the bundle that neurons on "
                        "flash are read from, or take a smaller type");
  }
  return out;
}

Finding CheckDisk(const std::string& model) {
  constexpr const char* kName = "disk";
  const auto resolved = model::ResolveModel(model);
  if (!resolved.ok()) return {kName, Verdict::kNote, "no model's file to measure by", ""};
  std::string path = *resolved;
  if (base::PathExists(path + ".tcb")) path += ".tcb";
  const auto curve = store::DeviceCurve(path);
  if (!curve.ok()) return {kName, Verdict::kWarning, curve.status().message(), ""};
  const double at_64k = curve->Bandwidth(64 << 10) / 1e9;
  char seen[200];
  std::snprintf(seen, sizeof seen, "%s (%s): %.2f GB/s in reads of 64 KiB, %.2f GB/s in one pass",
                curve->source().device.c_str(), curve->source().method.c_str(), at_64k,
                curve->SequentialBandwidth() / 1e9);
  Finding out{.name = kName, .seen = seen, .advice = ""};
  if (at_64k < 0.5) {
    out.verdict = Verdict::kNote;
    out.advice =
        "too slow for neurons on flash; a model that memory holds is only loaded from it. "
        "`thermocline bench --flash` shows its whole curve";
  }
  return out;
}

Finding CheckConfig(const std::string& path) {
  constexpr const char* kName = "configuration";
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::string daemon = (self.parent_path() / "thermoclined").string();
  const auto ran = RunProgram({daemon, "--config", path, "--check"});
  if (!ran.has_value())
    return {kName, Verdict::kWarning, StrCat(daemon, " cannot be started"),
            "install the daemon, too"};
  if (ran->code == 0) return {kName, Verdict::kOk, StrCat(path, " is valid"), ""};
  return {kName, Verdict::kError, ran->output, "config/thermocline.yaml explains every key"};
}

}  // namespace thermocline::tools
