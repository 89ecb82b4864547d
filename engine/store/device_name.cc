#include "engine/store/device_name.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "engine/base/posix_error.h"

namespace thermocline::store {
namespace {

namespace fs = std::filesystem;

// The first line of a file of /sys, without spaces around it; "" if there is none.
std::string Line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  const auto begin = line.find_first_not_of(" \t"), end = line.find_last_not_of(" \t");
  return begin == std::string::npos ? "" : line.substr(begin, end + 1 - begin);
}

// "overlay overlay", "nfs4 server:/models": file systems without a device of their own.
std::string MountOf(const std::string& id) {
  std::ifstream mounts("/proc/self/mountinfo");
  for (std::string line; std::getline(mounts, line);) {
    std::istringstream words(line);
    std::string skipped, device, type, source;
    words >> skipped >> skipped >> device;
    if (device != id) continue;
    while (words >> skipped && skipped != "-") {
    }
    words >> type >> source;
    return StrCat(type, " ", source);
  }
  return "";
}

}  // namespace

Result<DeviceName> DeviceOf(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return base::ErrnoStatus(path, "look up", errno);
  const std::string id = StrCat(major(info.st_dev), ":", minor(info.st_dev));
  std::error_code error;
  fs::path folder = fs::canonical(StrCat("/sys/dev/block/", id), error);
  if (error) {
    const std::string mount = MountOf(id);
    return DeviceName{
        .key = StrCat(id, "|", mount),
        .readable = mount.empty() ? StrCat("device ", id) : StrCat(mount, " (", id, ")")};
  }
  const std::string name = folder.filename().string();
  if (fs::exists(folder / "partition", error)) folder = folder.parent_path();
  const std::string model = Line(folder / "device/model");
  // Loop devices' numbers are reused for different files.
  std::string serial;
  for (const char* place : {"serial", "device/serial", "wwid", "dm/uuid", "loop/backing_file"}) {
    if (serial.empty()) serial = Line(folder / place);
  }
  return DeviceName{
      .key = StrCat(id, "|", name, "|", model, "|", serial, "|", Line(folder / "size")),
      .readable = StrCat(name, " (", model, model.empty() ? "" : ", ", id, ")")};
}

}  // namespace thermocline::store
