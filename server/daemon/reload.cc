#include "server/daemon/reload.h"

#include "engine/base/log.h"
#include "server/daemon/config_file.h"
#include "server/daemon/config_keys.h"

namespace thermocline::server {
namespace {

std::string Joined(const std::vector<std::string>& names) {
  std::string out;
  for (const std::string& name : names) out += (out.empty() ? "" : ", ") + name;
  return out;
}

}  // namespace

Status Reloader::Reload() {
  const base::MutexLock lock(mutex_);
  Status status = TryReload();
  if (!status.ok()) {
    base::LogError("the configuration is not reloaded, the old one stays: ", status.message());
  }
  return status;
}

Status Reloader::TryReload() {
  ASSIGN_OR_RETURN(const ServerConfig fresh, LoadServerConfig(path_, overrides_));
  ServerConfig config = service_.reloadable()->config;
  const std::vector<std::string> fixed = TakeReloadable(fresh, config);
  ASSIGN_OR_RETURN(std::shared_ptr<const ReloadableConfig> reloadable,
                   MakeReloadableConfig(config));
  const auto before = service_.reloadable();
  if (before->needs_keys() && !reloadable->needs_keys())
    return base::InvalidArgument(
        "server.api_keys_file: it is gone, and everybody could come in; to serve without keys is "
        "for a restart");
  const std::vector<std::string> loosened = Loosened(*before, *reloadable);
  std::vector<std::function<void()>> commits;
  for (const Prepare& prepare : prepares_) {
    ASSIGN_OR_RETURN(std::function<void()> commit, prepare(*reloadable));
    commits.push_back(std::move(commit));
  }
  service_.SetReloadable(std::move(reloadable));
  for (const auto& commit : commits) commit();
  ConfigureLog(config);
  if (Engine* engine = service_.engine(); engine != nullptr)
    engine->SetQueueLimits(config.serving.queue_capacity, config.serving.queue_prefill_tokens);
  const std::string names = Joined(fixed);
  const ServerConfig& start = service_.config();
  const bool moved =
      config.tls_certificate != start.tls_certificate || config.tls_key != start.tls_key;
  if (moved && !start.grpc_address.empty() && !start.grpc_address.starts_with("unix:")) {
    base::LogWarning("gRPC goes on with the certificate in ", start.tls_certificate,
                     " until a restart: files that are replaced reach it, another path does not");
  }
  if (!loosened.empty()) {
    service_.metrics().AccessLoosened();
    base::LogWarning("the reload lets more in: ", Joined(loosened));
  }
  if (!names.empty()) base::LogWarning("changed, but only a restart can take it up: ", names);
  base::LogInfo("the configuration is reloaded");
  return OkStatus();
}

void ConfigureLog(const ServerConfig& config) {
  const auto level = base::ParseLogLevel(config.log_level);
  base::ConfigureLog(level.ok() ? *level : base::LogLevel::kInfo, config.log_format == "json");
}

}  // namespace thermocline::server
