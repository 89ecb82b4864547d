#include "server/core/model_entries.h"

#include <algorithm>
#include <string>
#include <utility>

namespace thermocline::server {

Result<std::vector<ServedModelEntry>> EntriesOf(
    const std::shared_ptr<const ReloadableConfig>& reloadable) {
  std::vector<ServedModelEntry> list;
  for (const ModelEntry& entry : reloadable->config.models) {
    ASSIGN_OR_RETURN(auto own, MakeReloadableConfig(*entry.config));
    list.push_back({.config = std::move(own),
                    .pinned = entry.pinned,
                    .keep_alive_s = entry.keep_alive_s,
                    .found = entry.found});
  }
  if (list.empty()) list.push_back({.config = reloadable, .pinned = true});
  RETURN_IF_ERROR(CheckNames(list));
  return list;
}

Status CheckNames(const std::vector<ServedModelEntry>& list) {
  std::vector<std::string> names;
  for (const ServedModelEntry& entry : list)
    for (const std::string& name : ModelNames(entry.config->config))
      names.push_back(PlainName(name));
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice == names.end() || list.size() == 1) return OkStatus();
  return base::InvalidArgument("models: two have the name or alias '", *twice, "'");
}

}  // namespace thermocline::server
