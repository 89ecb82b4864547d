#include "engine/api/speculation.h"

#include <algorithm>

namespace thermocline {

Result<SpecMode> ParseSpecMode(std::string_view name) {
  const auto found = std::find(kSpecModeNames.begin(), kSpecModeNames.end(), name);
  if (found != kSpecModeNames.end()) return static_cast<SpecMode>(found - kSpecModeNames.begin());
  return base::InvalidArgument(
      "spec.mode '", name, "' is unknown; the modes are off, sync, branch, exhaustive and auto");
}

}  // namespace thermocline
