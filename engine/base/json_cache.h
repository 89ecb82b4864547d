// Measurements that are worth keeping: small JSON files in the user's cache folder.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "engine/base/json.h"

namespace thermocline::base {

// One file for each kind ("flash") and key, $XDG_CACHE_HOME/thermocline/<kind>/<hash of key>.json.
class JsonCache {
 public:
  JsonCache(std::string_view kind, std::string key);

  // "" if there is neither $XDG_CACHE_HOME nor $HOME.
  const std::string& path() const { return path_; }
  // Returns what Write kept; nothing if there is none. A file that is damaged or of another key is
  // nothing too, after a warning.
  std::optional<Json> Read() const;
  // FailedPrecondition without a folder, else errors of FileWriter. `json`: an object; member "key"
  // is set.
  Status Write(Json json) const;

 private:
  const std::string key_;
  std::string path_;
};

}  // namespace thermocline::base
