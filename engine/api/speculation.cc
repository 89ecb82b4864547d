#include "engine/api/speculation.h"

#include <algorithm>

namespace thermocline {

Result<SpecMode> ParseSpecMode(std::string_view name) {
  const auto found = std::find(kSpecModeNames.begin(), kSpecModeNames.end(), name);
  if (found != kSpecModeNames.end()) return static_cast<SpecMode>(found - kSpecModeNames.begin());
  constexpr std::size_t kShown = 64;
  return base::InvalidArgument("must be off, sync, branch, exhaustive or auto, not '",
                               name.substr(0, kShown), "'");
}

}  // namespace thermocline
