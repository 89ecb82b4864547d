// The part of the configuration that a reload changes, checked and ready to use.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "server/core/api_keys.h"
#include "server/core/server_config.h"

namespace thermocline::server {

// Immutable. Whoever handles a request or a connection takes one snapshot (Service::live) and goes
// by it to the end.
struct Live {
  ServerConfig config;  // of keys that are not reloadable: as at the start
  ApiKeys keys;
  std::vector<std::string> allowed_hosts;    // lower case; "*" = any
  std::vector<std::string> allowed_origins;  // "https://example.org", lower case; "*" = any

  // True if requests need a key.
  bool needs_keys() const { return !keys.empty(); }
  // Returns the owner of the prefixes that a request of `tenant` finds, as in Request: with keys
  // only its own, unless prefix_cache.share is "all"; without keys all clients share them.
  std::string PrefixOwner(const std::string& tenant) const {
    return needs_keys() && config.prefix_cache_share == "tenant" ? tenant : "";
  }
};

// True if an entry of allowed_origins is that of `origin`, both in lower case. An entry may end
// with
// ":*", which stands for any port and for none.
bool OriginMatches(const std::string& allowed, const std::string& origin);

// Lists what `after` lets in or gives rights to that `before` did not, each as a few words.
std::vector<std::string> Loosened(const Live& before, const Live& after);

// Reads the file of keys, checks the lists, and whether strangers could come in. Errors name the
// key of the configuration.
Result<std::shared_ptr<const Live>> MakeLive(const ServerConfig& config);

}  // namespace thermocline::server
