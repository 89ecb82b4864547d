// Reads the daemon's configuration from YAML and --set.
#pragma once

#include <string>
#include <vector>

#include "server/core/server_config.h"

namespace thermocline::server {

// Reads `path` (no file if ""), then applies each "key=value" of `overrides`. InvalidArgument gives
// file, line, key and the expected value; for an unknown key it names the nearest known one.
Result<ServerConfig> LoadServerConfig(const std::string& path,
                                      const std::vector<std::string>& overrides);

}  // namespace thermocline::server
