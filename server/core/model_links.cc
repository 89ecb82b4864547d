#include "server/core/model_links.h"

#include <algorithm>
#include <filesystem>

namespace thermocline::server {
namespace {

namespace fs = std::filesystem;

// The folder in which a model's files must lie.
fs::path HomeOf(const fs::path& folder) {
  std::error_code error;
  const fs::path real = fs::canonical(folder, error);
  return real.parent_path().filename() == "snapshots" ? real.parent_path().parent_path() : real;
}

bool LiesIn(const fs::path& home, const fs::path& real) {
  return std::ranges::mismatch(home, real).in1 == home.end();
}

// Checks the entries of `folder` itself. A link to a folder counts, too.
Status CheckFolder(const fs::path& folder, const fs::path& home) {
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    std::error_code unknown;
    if (!at->is_symlink(unknown) || at->path().extension() == ".safetensors") continue;
    const fs::path real = fs::canonical(at->path(), unknown);
    if (unknown || LiesIn(home, real)) continue;
    return base::FailedPrecondition(
        at->path().filename().string(),
        " is a link to a place outside of the model's folder; name the model in `models`, or copy "
        "the file, if that is wanted");
  }
  return OkStatus();
}

}  // namespace

Status CheckLinks(const std::string& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return OkStatus();
  const fs::path home = HomeOf(path);
  RETURN_IF_ERROR(CheckFolder(path, home));
  return CheckFolder(fs::path(path) / "1_Pooling", home);
}

}  // namespace thermocline::server
