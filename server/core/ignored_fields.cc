#include "server/core/ignored_fields.h"

#include "engine/base/log.h"
#include "engine/base/strings.h"

namespace thermocline::server {

void IgnoredFields::Note(const std::string& route, const std::vector<std::string>& names) {
  const base::MutexLock lock(mutex_);
  for (const std::string& each : names) {
    const std::string name = base::ReplaceInvalidUtf8(each);
    bool known = known_.contains({route, name});
    if (!known && known_.size() < kNamesMax) {
      known = known_.emplace(route, name).second;
      base::LogInfo(route, ": the field '", name,
                    "' is not known here and is ignored; this is logged once");
    }
    metrics_.FieldIgnored(route, known ? name : "other");
  }
}

}  // namespace thermocline::server
