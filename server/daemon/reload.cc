#include "server/daemon/reload.h"

#include <algorithm>

#include "engine/base/log.h"
#include "server/core/served_models.h"
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
  Status status = OkStatus();
  try {
    status = TryReload();
  } catch (const std::exception& error) {  // no memory, no threads
    status = base::Unavailable("something ran out: ", error.what());
  }
  if (!status.ok()) {
    base::LogError("the configuration is not reloaded, the old one stays: ", status.message());
  }
  return status;
}

// Keys that a model takes up only by being loaded again. Its part of the prefix cache's bytes
// depends on the length of the list, and waits for that.
std::vector<std::string> Reloader::TakeUp(const ServerConfig& fresh, ServerConfig& config) {
  std::vector<std::string> fixed = TakeReloadable(fresh, config);
  std::erase(fixed, "prefix_cache.bytes");
  return fixed;
}

// The first model's part of the fresh configuration; if the list lacks it, it keeps its names.
ServerConfig Reloader::FreshOfFirst(const ServerConfig& all) const {
  if (all.models.empty()) return all;
  const ServerConfig& start = service_.config();
  for (const ModelEntry& entry : all.models)
    if (entry.config->model.path == start.model.path &&
        ModelNames(*entry.config).front() == service_.model_name())
      return *entry.config;
  ServerConfig fresh = all;
  fresh.model.path = start.model.path;
  fresh.model_name = start.model_name;
  fresh.model_aliases = service_.reloadable()->config.model_aliases;
  return fresh;
}

Result<std::vector<ServedModels::Entry>> Reloader::PrepareList(
    const ServerConfig& fresh, const std::shared_ptr<const ReloadableConfig>& first) const {
  const auto held = service_.models()->HoldAll();
  std::vector<ServedModels::Entry> list;
  for (const ModelEntry& entry : fresh.models) {
    const auto same = std::find_if(held.begin(), held.end(), [&](const auto& each) {
      return each->config().model.path == entry.config->model.path &&
             each->model_name() == ModelNames(*entry.config).front();
    });
    const bool is_first = same != held.end() && same->get() == &service_;
    ServedModels::Entry next{
        .pinned = entry.pinned, .keep_alive_s = entry.keep_alive_s, .found = entry.found};
    ServerConfig config = *entry.config;
    if (same != held.end()) {
      ServerConfig kept = (*same)->reloadable()->config;
      const bool stays = TakeUp(*entry.config, kept).empty();
      if (stays) config = std::move(kept);
      if (stays || is_first) next.kept = *same;
    }
    if (is_first) {
      next.config = first;
      list.insert(list.begin(), std::move(next));
      continue;
    }
    ASSIGN_OR_RETURN(next.config, MakeReloadableConfig(config));
    list.push_back(std::move(next));
  }
  if (list.empty() || list.front().kept.get() != &service_) {
    base::LogWarning("models: the first model, ", service_.model_name(), ", stays until a restart");
    list.insert(list.begin(), {.kept = held.front(), .config = first, .pinned = true});
  }
  RETURN_IF_ERROR(CheckNames(list));
  return list;
}

Status Reloader::TryReload() {
  ASSIGN_OR_RETURN(const ServerConfig all, LoadServerConfig(path_, overrides_));
  const ServerConfig fresh = FreshOfFirst(all);
  ServerConfig config = service_.reloadable()->config;
  const std::vector<std::string> fixed = TakeUp(fresh, config);
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
  if (service_.models()->several()) {
    ASSIGN_OR_RETURN(const auto list, PrepareList(all, reloadable));
    service_.models()->SetList(list);
  } else {
    if (!all.models.empty())
      base::LogWarning("models: the daemon has one model without a list until a restart");
    service_.SetReloadable(reloadable);
  }
  for (const auto& commit : commits) commit();
  ConfigureLog(config);
  for (const auto& held : service_.models()->HoldAll()) {
    const ServingOptions& limits = held->reloadable()->config.serving;
    if (Engine* engine = held->engine(); engine != nullptr)
      engine->SetQueueLimits(limits.queue_capacity, limits.queue_prefill_tokens);
  }
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
