#include "engine/api/ffn_mode.h"

#include <algorithm>

#include "engine/base/strings.h"

namespace thermocline {
namespace {

// "3", "3-5" or "3-".
struct LayerRange {
  int first, last;
};

Result<LayerRange> ParseRange(std::string_view text, int num_layers) {
  const std::size_t dash = text.find('-');
  const auto first = base::ParseNumber<int>(std::string(text.substr(0, dash)));
  std::optional<int> last = first;
  if (dash != std::string_view::npos) {
    last = dash + 1 == text.size() ? num_layers - 1
                                   : base::ParseNumber<int>(std::string(text.substr(dash + 1)));
  }
  if (!first.has_value() || !last.has_value() || *first < 0 || *first > *last ||
      *last >= num_layers) {
    return base::InvalidArgument("'", text, "' names no layers; there are 0 to ", num_layers - 1,
                                 ", written as 3, 3-5 or 3-");
  }
  return LayerRange{*first, *last};
}

Status RefuseTrailingComma(std::string_view text) {
  if (!text.ends_with(',')) return OkStatus();
  return base::InvalidArgument("'", text.substr(0, 64),
                               "': a mode is missing behind the last comma");
}

}  // namespace

Result<FfnMode> ParseFfnMode(std::string_view name) {
  for (std::size_t i = 0; i < kFfnModeNames.size(); ++i) {
    if (kFfnModeNames[i] == name) return static_cast<FfnMode>(i);
  }
  if (name == "auto")
    return base::InvalidArgument("feed-forward mode 'auto' stands alone, for all layers");
  return base::InvalidArgument("feed-forward mode '", name,
                               "' is unknown; the modes are auto, dense, exact, sign, lowrank, "
                               "threshold and inputs");
}

Result<std::vector<FfnMode>> ParseFfnModeList(std::string_view text) {
  std::vector<FfnMode> modes;
  RETURN_IF_ERROR(RefuseTrailingComma(text));
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    ASSIGN_OR_RETURN(const FfnMode mode, ParseFfnMode(text.substr(0, comma)));
    modes.push_back(mode);
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return modes;
}

Result<FfnModes> ParseFfnModes(std::string_view text, int num_layers, FfnMode otherwise) {
  FfnModes modes;
  modes.automatic = text == "auto" || text.empty();
  if (modes.automatic) return modes;
  RETURN_IF_ERROR(RefuseTrailingComma(text));
  modes.layers.assign(num_layers, otherwise);
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    const std::string_view entry = text.substr(0, comma);
    text.remove_prefix(std::min(comma + 1, text.size()));
    const std::size_t colon = entry.find(':');
    const std::string_view name = colon == std::string_view::npos ? entry : entry.substr(colon + 1);
    ASSIGN_OR_RETURN(const FfnMode mode, ParseFfnMode(name));
    LayerRange range{0, num_layers - 1};
    if (colon != std::string_view::npos) {
      ASSIGN_OR_RETURN(range, ParseRange(entry.substr(0, colon), num_layers));
    }
    for (int i = range.first; i <= range.last; ++i) modes.layers[i] = mode;
  }
  return modes;
}

}  // namespace thermocline
