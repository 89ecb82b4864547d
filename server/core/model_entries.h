// The entries of the list of models, as a configuration gives them.
#pragma once

#include <memory>
#include <vector>

#include "server/core/service.h"

namespace thermocline::server {

struct ServedModelEntry {
  std::shared_ptr<Service> kept = nullptr;  // the model that stays; nullptr: it is a new one
  std::shared_ptr<const ReloadableConfig> config = nullptr;
  bool pinned = false;
  int keep_alive_s = -1;
  bool found = false;
};

// The entries of a configuration; one, which is pinned, if it has no list. Errors as
// MakeReloadableConfig and CheckNames.
Result<std::vector<ServedModelEntry>> EntriesOf(
    const std::shared_ptr<const ReloadableConfig>& reloadable);

// Two of these models have one name: InvalidArgument.
Status CheckNames(const std::vector<ServedModelEntry>& list);

}  // namespace thermocline::server
