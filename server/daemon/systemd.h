// Notifications to systemd and the sockets that it hands over. Without systemd there are none.
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
void NotifyReloading();  // NotifyReady follows, whatever became of it
void NotifyStopping(const std::string& status);
void NotifyFailed(int error_number, const std::string& status);
void NotifyWatchdog();

// Returns the time that systemd waits for NotifyWatchdog; nullopt: it does not.
std::optional<std::chrono::microseconds> WatchdogPeriod();

// Once: the environment is cleaned, so that no child takes them for its own.
std::vector<net::PassedSocket> TakePassedSockets();

}  // namespace thermocline::server
