#include "engine/base/system_memory.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "engine/base/strings.h"

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

// The memory that a control group leaves this process: its limit, less the usage of other
// processes; the page cache counts as free, because it can be reclaimed.
std::size_t AllowanceOf(std::size_t limit, std::size_t used, std::size_t cache) {
  if (limit == kNone) return kNone;
  const std::size_t resident = ResidentBytes();
  std::size_t others = used == kNone ? 0 : used;
  others -= std::min(others, resident);
  others -= std::min(others, cache == kNone ? 0 : cache);
  return limit > others ? limit - others : 0;
}

// A folder with the files of a control group that holds this process.
struct GroupFolder {
  std::string path;
  bool second_version;
};

// The folders of the process's groups of `controller` and of all groups above them. `root`: ""
// except in tests.
std::vector<GroupFolder> GroupFolders(const std::string& root, const std::string& controller) {
  std::vector<GroupFolder> out;
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    // "4:cpu,cpuacct:/group", or "0::/group" of version 2.
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool named =
        StrCat(",", controllers, ",").find(StrCat(",", controller, ",")) != std::string::npos;
    if (!named && !controllers.empty()) continue;
    const std::string mount =
        StrCat(root, "/sys/fs/cgroup", named ? "/" : "", named ? controller : "");
    for (std::string group = line.substr(second + 1);; group.resize(group.rfind('/'))) {
      out.push_back({mount + group, controllers.empty()});
      if (group.empty() || group == "/") break;
    }
  }
  return out;
}

std::size_t ControlGroupAllowance() {
  std::size_t least = kNone;
  for (const auto& [folder, second_version] : GroupFolders("", "memory")) {
    const std::string stat = folder + "/memory.stat";
    least =
        std::min(least, second_version ? AllowanceOf(NumberIn(folder + "/memory.max"),
                                                     NumberIn(folder + "/memory.current"),
                                                     NumberOf(stat, "file"))
                                       : AllowanceOf(NumberIn(folder + "/memory.limit_in_bytes"),
                                                     NumberIn(folder + "/memory.usage_in_bytes"),
                                                     NumberOf(stat, "total_cache")));
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

std::size_t MemoryBudget(std::int64_t asked) {
  return asked > 0 ? static_cast<std::size_t>(asked) : MemoryAllowance() / 10 * 9;
}

double ProcessorQuota(const std::string& root) {
  double least = std::numeric_limits<double>::infinity();
  for (const auto& [folder, second_version] : GroupFolders(root, "cpu")) {
    double quota = 0, period = 0;  // microseconds
    if (second_version) {
      std::ifstream file(folder + "/cpu.max");  // "100000 100000", or "max 100000"
      if (!(file >> quota >> period)) continue;
    } else {
      std::ifstream quota_file(folder + "/cpu.cfs_quota_us"),
          period_file(folder + "/cpu.cfs_period_us");
      if (!(quota_file >> quota) || !(period_file >> period)) continue;
    }
    if (quota > 0 && period > 0) least = std::min(least, quota / period);
  }
  return least;
}

int UsableProcessors() {
  cpu_set_t set;
  const int bound = ::sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
  return static_cast<int>(std::clamp(ProcessorQuota(), 1.0, static_cast<double>(bound)));
}

std::string ProcessorName() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "unknown";
}

}  // namespace thermocline::base
