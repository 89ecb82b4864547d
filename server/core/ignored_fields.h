// Reports the ignored fields of requests to the operator: once in the log, and by a metric.
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
  // Clients choose the names, so only so many get a log line and a time series of their own. Fields
  // beyond them, names above 64 bytes, and names with characters other than letters, digits, '_',
  // '.' and '-' are counted as "other".
  static constexpr std::size_t kNamesMax = 128;

  // `metrics` must outlive this.
  explicit IgnoredFields(Metrics& metrics) : metrics_(metrics) {}

  // Counts the ignored fields of one request; `route` is the route's template.
  void Count(const std::string& route, const std::vector<std::string>& names);

 private:
  Metrics& metrics_;
  base::Mutex mutex_;
  std::set<std::pair<std::string, std::string>> known_ GUARDED_BY(mutex_);  // route, name
};

}  // namespace thermocline::server
