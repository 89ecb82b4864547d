// Tells the operator which fields of requests are ignored: once in the log, and by a metric.
#pragma once

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/mutex.h"
#include "server/metrics/metrics.h"

namespace thermocline::server {

// Thread-safe.
class IgnoredFields {
 public:
  // Clients choose the names, so that only so many get a log line and a series of their own. Fields
  // beyond them, and those with other characters than letters, digits, '_', '.' and '-' or more
  // than 64 bytes, are counted as "other".
  static constexpr std::size_t kNamesMax = 128;

  // `metrics` must live as long.
  explicit IgnoredFields(Metrics& metrics) : metrics_(metrics) {}

  // One request of `route`, which is the route's template, had these fields.
  void Note(const std::string& route, const std::vector<std::string>& names);

 private:
  Metrics& metrics_;
  base::Mutex mutex_;
  std::set<std::pair<std::string, std::string>> known_ GUARDED_BY(mutex_);  // route, name
};

}  // namespace thermocline::server
