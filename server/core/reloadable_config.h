// The reloadable part of the configuration, checked and ready to use.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "server/core/api_keys.h"
#include "server/core/server_config.h"

namespace thermocline::server {

// Immutable. The handler of a request or connection takes one snapshot (Service::reloadable) and
// keeps it to the end.
struct ReloadableConfig {
  ServerConfig config;  // keys that are not reloadable keep their values of the start
  ApiKeys keys;
  std::vector<std::string> allowed_hosts;    // lower case; "*" = any
  std::vector<std::string> allowed_origins;  // "https://example.org", lower case; "*" = any

  // True if requests need a key.
  bool needs_keys() const { return !keys.empty(); }
  // Returns the owner of the cached prefixes that a request of `tenant` may reuse, as in Request.
  // With keys that is the tenant itself, unless prefix_cache.share is "all"; without keys all
  // clients share them.
  std::string PrefixOwner(const std::string& tenant) const {
    return needs_keys() && config.prefix_cache_share == "tenant" ? tenant : "";
  }
};

// True if `allowed`, an entry of allowed_origins, matches `origin`, both in lower case. An entry
// may end with ":*", which matches any port and no port.
bool OriginMatches(const std::string& allowed, const std::string& origin);

// Lists the access and rights that `after` grants and `before` did not, each in a few words.
std::vector<std::string> Loosened(const ReloadableConfig& before, const ReloadableConfig& after);

// Reads the key file and checks the lists, and that clients without a key cannot connect from other
// hosts. Errors name the key of the configuration.
Result<std::shared_ptr<const ReloadableConfig>> MakeReloadableConfig(const ServerConfig& config);

}  // namespace thermocline::server
