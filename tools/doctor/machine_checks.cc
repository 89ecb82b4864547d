#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <map>
#include <sstream>

#include "engine/base/strings.h"
#include "engine/base/system_memory.h"
#include "kernels/op_table.h"
#include "tools/doctor/checks.h"

namespace thermocline::tools {
namespace {

// MemAvailable and the other values of /proc/meminfo, in bytes, by name.
std::map<std::string, double> MemInfo(const MachineFiles& files) {
  std::map<std::string, double> out;
  std::istringstream lines(files.Read("proc/meminfo").value_or(""));
  std::string line;
  while (std::getline(lines, line)) {
    const std::size_t colon = line.find(':');
    if (colon != std::string::npos)
      out[line.substr(0, colon)] = std::strtod(line.c_str() + colon + 1, nullptr) * 1024;
  }
  return out;
}

std::string Degrees(double celsius) { return StrCat(std::lround(celsius), " degrees"); }

}  // namespace

Finding CheckProcessor(const MachineFiles& files) {
  Finding out{.name = "processor", .seen = "", .advice = ""};
  const std::string best = kernels::CpuTables().tables[0]->name;
  const std::string online = files.Read("sys/devices/system/cpu/online").value_or("?");
  out.seen = StrCat(base::ProcessorName(), "; processors ", online, "; kernels: ", best);
  if (best == "reference") {
    out.verdict = Verdict::kError;
    out.advice =
        "this processor has neither AVX2 nor NEON with dot products: the scalar kernels decode a "
        "token of a small model in seconds";
  } else if (best == "avx2") {
    out.verdict = Verdict::kNote;
    out.advice = "without AVX-512 or AVX-VNNI decoding is bound by instructions, not by memory";
  }
  return out;
}

Finding CheckMemory(const MachineFiles& files) {
  const auto info = MemInfo(files);
  const auto get = [&](const char* name) {
    const auto found = info.find(name);
    return found == info.end() ? 0.0 : found->second;
  };
  const double total = get("MemTotal"), available = get("MemAvailable");
  Finding out{.name = "memory",
              .seen = StrCat(base::HumanBytes(available), " free of ", base::HumanBytes(total),
                             ", swap ", base::HumanBytes(get("SwapTotal"))),
              .advice = ""};
  if (total == 0) return {"memory", Verdict::kNote, "/proc/meminfo cannot be read", ""};
  if (files.real()) {
    const auto allowed = static_cast<double>(base::MemoryAllowance());
    if (allowed < 0.9 * available) {
      out.verdict = Verdict::kNote;
      out.seen += StrCat("; a control group allows ", base::HumanBytes(allowed));
      out.advice = "memory.budget_bytes is taken from that limit; raise MemoryMax= for more";
    }
  }
  if (available < 1e9) {
    out.verdict = Verdict::kWarning;
    out.advice =
        "little memory is free: end other programs; without a desktop (systemctl set-default "
        "multi-user.target) a Jetson has nearly 1 GB more";
  }
  return out;
}

Finding CheckHugePages(const MachineFiles& files) {
  const std::string path = "sys/kernel/mm/transparent_hugepage/enabled";
  const auto text = files.Read(path);
  if (!text.has_value())
    return {"huge pages", Verdict::kNote, "this kernel has no transparent huge pages", ""};
  if (text->find("[never]") == std::string::npos) return {"huge pages", Verdict::kOk, *text, ""};
  return {
      "huge pages", Verdict::kWarning, *text,
      StrCat("weights lie in pages of 4 KiB, which costs some percent of decoding: echo madvise "
             "> /",
             path)};
}

Finding CheckLockedMemory() {
  rlimit limit{};
  ::getrlimit(RLIMIT_MEMLOCK, &limit);
  const bool any = limit.rlim_cur == RLIM_INFINITY;
  const std::string seen =
      any ? "any amount may be locked" : StrCat(base::HumanBytes(limit.rlim_cur), " may be locked");
  if (any) return {"locked memory", Verdict::kOk, seen, ""};
  return {"locked memory", Verdict::kNote, seen,
          "weights may be swapped out, and a GPU's shared buffers may be refused: the systemd unit "
          "has LimitMEMLOCK=infinity; in a shell: ulimit -l unlimited"};
}

Finding CheckIoUring(const MachineFiles& files) {
  constexpr const char* kName = "io_uring";
  // The value 1 restricts it to some users; the system call below tells.
  const auto off = files.ReadNumber("proc/sys/kernel/io_uring_disabled");
  if (off.value_or(0) > 1 || (off.value_or(0) > 0 && !files.real()))
    return {kName, Verdict::kWarning, StrCat("kernel.io_uring_disabled is ", *off),
            "neurons on flash are read by threads, with less depth: sysctl "
            "kernel.io_uring_disabled=0"};
  if (!files.real()) return {kName, Verdict::kOk, "not disabled", ""};
  // A ring without entries is invalid: EINVAL shows that the call exists, ENOSYS or EPERM that it
  // does not.
  ::syscall(SYS_io_uring_setup, 0, nullptr);
  if (errno == EINVAL || errno == EFAULT) return {kName, Verdict::kOk, "available", ""};
  return {kName, Verdict::kWarning, errno == ENOSYS ? "not in this kernel" : "forbidden here",
          "neurons on flash are read by threads, with less depth: Linux 5.6, or a container's "
          "seccomp profile that allows io_uring"};
}

Finding CheckPowerMode(const MachineFiles& files) {
  Finding out{.name = "power mode", .seen = "", .advice = ""};
  std::map<std::string, int> governors;
  // The governor powersave means the lowest clock, except with drivers that choose themselves.
  bool lowest = false;
  for (const std::string& policy : files.List("sys/devices/system/cpu/cpufreq")) {
    const std::string folder = "sys/devices/system/cpu/cpufreq/" + policy + "/";
    const auto governor = files.Read(folder + "scaling_governor");
    if (!governor.has_value()) continue;
    ++governors[*governor];
    const std::string driver = files.Read(folder + "scaling_driver").value_or("");
    lowest |= *governor == "powersave" && driver != "intel_pstate" && driver != "amd-pstate-epp";
  }
  for (const auto& [governor, count] : governors)
    out.seen += StrCat(out.seen.empty() ? "" : ", ", "governor ", governor, " (", count, ")");
  // nvpmodel stores "pmode:0001" here.
  if (const auto mode = files.Read("var/lib/nvpmodel/status"); mode.has_value()) {
    out.verdict = Verdict::kNote;
    out.seen += StrCat(out.seen.empty() ? "" : "; ", "nvpmodel ", *mode);
    out.advice =
        "nvpmodel -q names the mode; 25 W gives most tokens per joule on an Orin Nano, MAXN most "
        "tokens; jetson_clocks holds the clocks up for measurements";
  } else if (lowest) {
    out.verdict = Verdict::kWarning;
    out.advice = "processors stay at their lowest clock: cpupower frequency-set -g schedutil";
  }
  if (out.seen.empty()) out.seen = "the system does not show it, as in most virtual machines";
  return out;
}

Finding CheckTemperature(const MachineFiles& files) {
  Finding out{.name = "temperature", .seen = "", .advice = ""};
  double hottest = -300, margin = 1e9;
  std::string where;
  for (const std::string& zone : files.List("sys/class/thermal")) {
    const std::string folder = "sys/class/thermal/" + zone + "/";
    const auto temperature = files.ReadNumber(folder + "temp");
    if (!zone.starts_with("thermal_zone") || !temperature.has_value()) continue;
    if (*temperature / 1000 > hottest) {
      hottest = *temperature / 1000;
      where = files.Read(folder + "type").value_or(zone);
    }
    for (int trip = 0; trip < 12; ++trip) {
      const auto type = files.Read(StrCat(folder, "trip_point_", trip, "_type"));
      const auto limit = files.ReadNumber(StrCat(folder, "trip_point_", trip, "_temp"));
      if (type == "passive" && limit.value_or(0) > 0)
        margin = std::min(margin, (*limit - *temperature) / 1000);
    }
  }
  if (where.empty()) return {"temperature", Verdict::kNote, "no sensors are shown", ""};
  out.seen = StrCat(where, " has ", Degrees(hottest));
  if (margin < 1e9) out.seen += StrCat(", ", Degrees(margin), " below where clocks are lowered");
  if (margin <= 0 || hottest > 95) {
    out.verdict = Verdict::kWarning;
    out.advice =
        "clocks are lowered now: check fans, dust and the power mode; measure when it is cool";
  } else if (margin < 10) {
    out.verdict = Verdict::kNote;
    out.advice = "clocks will be lowered under load";
  }
  return out;
}

}  // namespace thermocline::tools
