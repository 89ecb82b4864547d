#include "server/daemon/systemd.h"

#include <systemd/sd-daemon.h>
#include <time.h>

#include <algorithm>
#include <cstdlib>

#include "engine/base/strings.h"

namespace thermocline::server {
namespace {

// Progress in loading extends systemd's timeout by this time.
constexpr std::chrono::microseconds kPatience = std::chrono::seconds(120);

void Notify(const std::string& lines) { sd_notify(0, lines.c_str()); }

// One line, so that text from elsewhere cannot add other notifications.
std::string StatusLine(std::string status) {
  std::replace(status.begin(), status.end(), '\n', ' ');
  return "STATUS=" + status;
}

}  // namespace

void NotifyLoading(double share, bool extend_timeout) {
  std::string lines = StrCat("STATUS=loading ", static_cast<int>(share * 100), "%");
  if (extend_timeout) lines += StrCat("\nEXTEND_TIMEOUT_USEC=", kPatience.count());
  Notify(lines);
}

void NotifyReady(const std::string& status) { Notify("READY=1\n" + StatusLine(status)); }

void NotifyStatus(const std::string& status) { Notify(StatusLine(status)); }

void NotifyReloading() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  const std::int64_t us = std::int64_t{now.tv_sec} * 1'000'000 + now.tv_nsec / 1000;
  Notify(StrCat("RELOADING=1\nMONOTONIC_USEC=", us, "\nSTATUS=reloading"));
}

void NotifyStopping(const std::string& status) { Notify("STOPPING=1\n" + StatusLine(status)); }

void NotifyFailed(int error_number, const std::string& status) {
  Notify(StrCat("ERRNO=", error_number, "\n", StatusLine(status)));
}

void NotifyWatchdog() { Notify("WATCHDOG=1"); }

std::optional<std::chrono::microseconds> WatchdogPeriod() {
  std::uint64_t us = 0;
  if (sd_watchdog_enabled(0, &us) <= 0) return std::nullopt;
  return std::chrono::microseconds(us);
}

std::vector<net::PassedSocket> TakePassedSockets() {
  std::vector<net::PassedSocket> sockets;
  char** names = nullptr;
  const int count = sd_listen_fds_with_names(1, &names);
  sockets.reserve(std::max(count, 0));
  for (int i = 0; i < count; ++i) sockets.push_back({SD_LISTEN_FDS_START + i, names[i]});
  for (int i = 0; i < count; ++i) std::free(names[i]);
  std::free(names);
  return sockets;
}

}  // namespace thermocline::server
