// Measurements worth keeping: small JSON files in the user's cache folder.
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
  // Returns the value that Write stored; nullopt if there is none, and also, after a warning, if
  // the file is damaged or belongs to another key.
  std::optional<Json> Read() const;
  // FailedPrecondition if there is no cache folder, otherwise errors of FileWriter. `json`: an
  // object; member "key" is set.
  Status Write(Json json) const;

 private:
  const std::string key_;
  std::string path_;
};

}  // namespace thermocline::base
