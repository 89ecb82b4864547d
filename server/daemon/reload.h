// Reloads the configuration while the daemon serves: SIGHUP and POST /admin/reload.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/mutex.h"
#include "server/core/served_models.h"
#include "server/core/service.h"

namespace thermocline::server {

// Thread-safe.
class Reloader {
 public:
  // Prepares for `reloadable`; returns a function that applies it, which cannot fail.
  using Prepare = std::function<Result<std::function<void()>>(const ReloadableConfig& reloadable)>;

  // `path` and `overrides` are the configuration's source at the start.
  Reloader(Service& service, std::string path, std::vector<std::string> overrides)
      : service_(service), path_(std::move(path)), overrides_(std::move(overrides)) {}

  // Adds a step; steps run in the order of their addition. Requires: Reload was not called.
  void Add(Prepare prepare) { prepares_.push_back(std::move(prepare)); }

  // All or nothing: an error changes no setting. The log names settings that need a restart.
  Status Reload();

 private:
  Status TryReload();
  ServerConfig FreshOfFirst(const ServerConfig& all) const;
  static std::vector<std::string> TakeUp(const ServerConfig& fresh, ServerConfig& config);
  // The list of `fresh`, in which models stay if what changed can be taken up while they serve.
  // `first`: the configuration of the first model, which always stays.
  Result<std::vector<ServedModels::Entry>> PrepareList(
      const ServerConfig& fresh, const std::shared_ptr<const ReloadableConfig>& first) const;

  Service& service_;
  const std::string path_;
  const std::vector<std::string> overrides_;
  std::vector<Prepare> prepares_;
  base::Mutex mutex_;  // one reload at a time
};

// Applies log.level and log.format.
void ConfigureLog(const ServerConfig& config);

}  // namespace thermocline::server
