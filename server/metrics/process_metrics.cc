#include "server/metrics/process_metrics.h"

#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "engine/base/log.h"

namespace thermocline::server {
namespace {

// Fields of /proc/self/stat from the third on; the second may contain spaces. Source: proc(5).
constexpr std::size_t kFieldsFrom = 3, kUserTicks = 14, kSystemTicks = 15, kThreads = 20,
                      kStartTicks = 22, kVirtualBytes = 23, kResidentPages = 24;

std::array<double, kResidentPages + 1> ReadStat() {
  std::array<double, kResidentPages + 1> fields = {};
  std::ifstream file("/proc/self/stat");
  std::string text;
  std::getline(file, text);
  const std::size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return fields;
  std::istringstream rest(text.substr(name_end + 1));
  std::string state;
  rest >> state;
  for (std::size_t i = kFieldsFrom + 1; i < fields.size(); ++i) rest >> fields[i];
  return fields;
}

// The Unix time at which the machine booted.
double ReadBootTime() {
  std::ifstream file("/proc/stat");
  for (std::string key; file >> key;) {
    double seconds = 0;
    if (key == "btime" && file >> seconds) return seconds;
  }
  return 0;
}

int CountOpenFiles() {
  std::error_code error;
  int count = 0;
  for (std::filesystem::directory_iterator it("/proc/self/fd", error), end; !error && it != end;
       it.increment(error))
    ++count;
  return count;
}

}  // namespace

void ExposeProcess(MetricSet& set) {
  static const double boot_time = ReadBootTime();
  static const auto ticks_per_s = static_cast<double>(::sysconf(_SC_CLK_TCK));
  const auto stat = ReadStat();
  set.CatchUp("log_lines_dropped_total", static_cast<double>(base::DroppedLogLines()));
  if (stat[kThreads] > 0) {
    set.CatchUp("process_cpu_seconds_total", (stat[kUserTicks] + stat[kSystemTicks]) / ticks_per_s);
    set.Set("process_resident_memory_bytes",
            stat[kResidentPages] * static_cast<double>(::sysconf(_SC_PAGESIZE)));
    set.Set("process_virtual_memory_bytes", stat[kVirtualBytes]);
    set.Set("process_start_time_seconds", boot_time + stat[kStartTicks] / ticks_per_s);
    set.Set("process_threads", stat[kThreads]);
  }
  set.Set("process_open_fds", CountOpenFiles());
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0) set.Set("process_max_fds", limit.rlim_cur);
}

}  // namespace thermocline::server
