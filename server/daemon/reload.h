// Reading the configuration again while the daemon serves: SIGHUP and POST /admin/reload.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/base/mutex.h"
#include "server/core/service.h"

namespace thermocline::server {

// Thread-safe.
class Reloader {
 public:
  // Gets ready for `live` and gives what then takes it into use, which cannot fail.
  using Prepare = std::function<Result<std::function<void()>>(const Live& live)>;

  // `path` and `overrides` are the source of the configuration at the start.
  Reloader(Service& service, std::string path, std::vector<std::string> overrides)
      : service_(service), path_(std::move(path)), overrides_(std::move(overrides)) {}

  // Called in the order of their coming. Before the first Reload.
  void Add(Prepare prepare) { prepares_.push_back(std::move(prepare)); }

  // All or nothing: after an error everything is as it was. Settings that need a restart are named
  // in the log.
  Status Reload();

 private:
  Status TryReload();

  Service& service_;
  const std::string path_;
  const std::vector<std::string> overrides_;
  std::vector<Prepare> prepares_;
  base::Mutex mutex_;  // one reload at a time
};

// Takes log.level and log.format into use.
void ConfigureLog(const ServerConfig& config);

}  // namespace thermocline::server
