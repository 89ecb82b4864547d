#include "engine/base/system_memory.h"

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <limits>
#include <string>

namespace thermocline::base {
namespace {

constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();

// The first number in a file; kNone if there is no such file, or it says "max".
std::size_t NumberIn(const std::string& path) {
  std::ifstream file(path);
  std::size_t value = 0;
  return file >> value ? value : kNone;
}

// A line "NAME VALUE" or "NAME: VALUE kB"; kNone without one.
std::size_t NumberOf(const std::string& path, const std::string& name) {
  std::ifstream file(path);
  std::string word;
  std::size_t value = 0;
  while (file >> word) {
    if (word == name && file >> value) return value;
  }
  return kNone;
}

// What a control group leaves this process: its limit, less what is in use by others; the page
// cache can be given back.
std::size_t AllowanceOf(std::size_t limit, std::size_t used, std::size_t cache) {
  if (limit == kNone) return kNone;
  const std::size_t resident = ResidentBytes();
  std::size_t others = used == kNone ? 0 : used;
  others -= std::min(others, resident);
  others -= std::min(others, cache == kNone ? 0 : cache);
  return limit > others ? limit - others : 0;
}

// The limits of a group and of all above it.
std::size_t AllowanceInGroups(std::string group, const std::string& root, bool second_version) {
  std::size_t least = kNone;
  while (true) {
    const std::string folder = root + group;
    const std::string stat = folder + "/memory.stat";
    least =
        std::min(least, second_version ? AllowanceOf(NumberIn(folder + "/memory.max"),
                                                     NumberIn(folder + "/memory.current"),
                                                     NumberOf(stat, "file"))
                                       : AllowanceOf(NumberIn(folder + "/memory.limit_in_bytes"),
                                                     NumberIn(folder + "/memory.usage_in_bytes"),
                                                     NumberOf(stat, "total_cache")));
    if (group.empty() || group == "/") return least;
    group.resize(group.rfind('/'));
  }
}

std::size_t ControlGroupAllowance() {
  std::ifstream file("/proc/self/cgroup");
  std::string line;
  std::size_t least = kNone;
  while (std::getline(file, line)) {  // "4:memory:/group", or "0::/group" of version 2
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string group = line.substr(second + 1);
    if (controllers == "memory")
      least = std::min(least, AllowanceInGroups(group, "/sys/fs/cgroup/memory", false));
    if (controllers.empty())
      least = std::min(least, AllowanceInGroups(group, "/sys/fs/cgroup", true));
  }
  return least;
}

}  // namespace

std::size_t ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  std::size_t size = 0, resident = 0;
  file >> size >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

std::size_t MemoryAllowance() {
  const std::size_t free_kb = NumberOf("/proc/meminfo", "MemAvailable:");
  const std::size_t system = free_kb == kNone ? kNone : free_kb * 1024 + ResidentBytes();
  return std::min(system, ControlGroupAllowance());
}

std::string ProcessorName() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "unknown";
}

}  // namespace thermocline::base
