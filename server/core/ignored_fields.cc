#include "server/core/ignored_fields.h"

#include "engine/base/log.h"
#include "engine/base/strings.h"

namespace thermocline::server {
namespace {

bool IsPlain(std::string_view name) {
  constexpr std::size_t kBytesMax = 64;
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-";
  return name.size() <= kBytesMax && name.find_first_not_of(kPlain) == std::string_view::npos;
}

}  // namespace

void IgnoredFields::Count(const std::string& route, const std::vector<std::string>& names) {
  const base::MutexLock lock(mutex_);
  for (const std::string& each : names) {
    const std::string name = base::ReplaceInvalidUtf8(each);
    bool known = known_.contains({route, name});
    if (!known && known_.size() < kNamesMax) {
      known = known_.emplace(route, name).second;
      base::LogInfo(route, ": the field '", name,
                    "' is not known here and is ignored; this is logged once");
    }
    metrics_.FieldIgnored(route, known && IsPlain(name) ? name : kOtherLabelValue);
  }
}

}  // namespace thermocline::server
