// Reads the configuration of the daemon from YAML and --set.
#pragma once

#include <string>
#include <vector>

#include "server/core/server_config.h"

namespace thermocline::server {

// Reads `path` (none if ""), then applies each "key=value" of `overrides`.
// InvalidArgument gives file, line, key and what was expected; an unknown key comes with the
// nearest known one.
Result<ServerConfig> LoadServerConfig(const std::string& path,
                                      const std::vector<std::string>& overrides);

}  // namespace thermocline::server
