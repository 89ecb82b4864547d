// Notifications to systemd, and the sockets that it passes. Without systemd they do nothing.
// Source: sd_notify(3), sd_watchdog_enabled(3), sd_listen_fds(3).
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "server/net/passed_socket.h"

namespace thermocline::server {

// Thread-safe. `status` is the line that `systemctl status` shows.
void NotifyLoading(double share, bool extend_timeout);  // "loading 43%"
void NotifyReady(const std::string& status);
void NotifyStatus(const std::string& status);
void NotifyReloading();  // always followed by NotifyReady, even after an error
void NotifyStopping(const std::string& status);
void NotifyFailed(int error_number, const std::string& status);
void NotifyWatchdog();

// Returns the interval in which systemd expects NotifyWatchdog; nullopt without a watchdog.
std::optional<std::chrono::microseconds> WatchdogPeriod();

// Called once: it clears the environment, so that child processes do not use the sockets.
std::vector<net::PassedSocket> TakePassedSockets();

}  // namespace thermocline::server
