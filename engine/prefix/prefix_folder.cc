#include "engine/prefix/prefix_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <map>
#include <string_view>
#include <system_error>
#include <vector>

#include "engine/base/log.h"
#include "engine/base/posix_error.h"

namespace thermocline::prefix {
namespace {

namespace fs = std::filesystem;

// The files of one model and one setting: NAME.KIND.{table,slots}.
struct Group {
  std::vector<fs::path> files;
  std::uint64_t bytes = 0;
  fs::file_time_type written = fs::file_time_type::min();
};

// True of a name that PrefixKeys and FlashPrefixes give: other files in the folder are left alone.
bool IsOurs(const std::string& file) {
  const std::string_view name = file;
  const auto is_hex = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  if (name.size() < 17 || !std::all_of(name.begin(), name.begin() + 16, is_hex)) return false;
  const std::string_view kind = name.substr(16, name.rfind('.') - 16);
  return kind == ".blocks" || kind == ".windows" || kind == ".states";
}

std::map<std::string, Group> GroupsIn(const std::string& folder) {
  std::map<std::string, Group> groups;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    const std::string ending = entry.path().extension();
    if (!entry.is_regular_file(error) || (ending != ".table" && ending != ".slots")) continue;
    const std::string file = entry.path().filename();
    if (!IsOurs(file)) continue;
    Group& group = groups[file.substr(0, file.find('.'))];
    group.files.push_back(entry.path());
    group.bytes += entry.file_size(error);
    group.written = std::max(group.written, entry.last_write_time(error));
  }
  return groups;
}

// True if a process holds one of the tables.
bool IsHeld(const Group& group) {
  return std::any_of(group.files.begin(), group.files.end(), [](const fs::path& file) {
    if (file.extension() != ".table") return false;
    const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) return false;
    const bool held = ::flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    ::close(fd);
    return held;
  });
}

}  // namespace

Status MakeFolder(const std::string& folder) {
  std::error_code error;
  const fs::path parent = fs::path(folder).parent_path();
  if (!parent.empty()) fs::create_directories(parent, error);
  if (error) return base::ErrnoStatus(parent, "make the folder", error.value());
  if (::mkdir(folder.c_str(), 0700) == 0) return OkStatus();
  if (errno != EEXIST) return base::ErrnoStatus(folder, "make the folder", errno);
  struct stat found {};
  if (::stat(folder.c_str(), &found) == 0 && S_ISDIR(found.st_mode)) {
    if ((found.st_mode & (S_IWGRP | S_IWOTH)) != 0)
      base::LogWarning(folder,
                       ": others may write here and so take away or replace what the prefix "
                       "cache keeps; give it a folder of its own: chmod 700");
    return OkStatus();
  }
  return base::InvalidArgument(folder, ": not a folder; the prefix cache needs one of its own");
}

Result<std::uint64_t> RoomInFolder(const std::string& folder, const std::string& own,
                                   std::int64_t bytes_max) {
  std::map<std::string, Group> groups = GroupsIn(folder);
  groups.erase(own);
  std::vector<const Group*> others;
  std::uint64_t bytes = 0;
  for (const auto& [name, group] : groups) {
    others.push_back(&group);
    bytes += group.bytes;
  }
  std::sort(others.begin(), others.end(),
            [](const Group* a, const Group* b) { return a->written < b->written; });
  const auto most = static_cast<std::uint64_t>(bytes_max);
  for (const Group* group : others) {
    if (bytes <= most / 2) break;
    if (IsHeld(*group)) continue;
    std::error_code error;
    for (const fs::path& file : group->files) fs::remove(file, error);
    base::LogInfo("the prefix cache on flash: removed ", base::HumanBytes(group->bytes),
                  " of another model or setting");
    bytes -= group->bytes;
  }
  return most > bytes ? most - bytes : 0;
}

}  // namespace thermocline::prefix
