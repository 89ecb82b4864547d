#include "tools/common/console.h"

#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <optional>

namespace thermocline::tools {
namespace {

std::optional<int> exit_status;

}  // namespace

void SetExitStatus(int status) { exit_status = status; }
int ExitStatusOr(int usual) { return exit_status.value_or(usual); }

std::string DaemonPath() {
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  return (self.parent_path() / "thermoclined").string();
}

ProgressBar::ProgressBar(std::string label)
    : label_(std::move(label)), terminal_(::isatty(STDERR_FILENO) != 0) {}

void ProgressBar::Show(double share) {
  const int percent = static_cast<int>(share * 100);
  if (!terminal_ || percent == percent_) return;
  percent_ = percent;
  constexpr int kWidth = 30;
  const int filled = percent * kWidth / 100;
  std::string bar(filled, '#');
  bar.append(kWidth - filled, '.');
  std::fprintf(stderr, "\r%s [%s] %3d%%", label_.c_str(), bar.c_str(), percent);
}

void ProgressBar::Clear() {
  if (terminal_ && percent_ >= 0) std::fprintf(stderr, "\r\033[K");
  percent_ = -1;
}

void PrintJson(const Json& json) {
  const std::string text = json.Dump() + "\n";
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

Result<std::string> ReadStdin() {
  std::string text;
  char buffer[65536];
  while (const std::size_t n = std::fread(buffer, 1, sizeof(buffer), stdin)) text.append(buffer, n);
  if (std::ferror(stdin) != 0) return base::Unavailable("standard input cannot be read");
  return text;
}

}  // namespace thermocline::tools
