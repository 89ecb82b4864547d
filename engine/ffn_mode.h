// How a feed-forward network is computed: which neurons' rows are read.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/status.h"

namespace thermocline {

// gate rows read, then up and down rows:
//   kDense      all; all
//   kExact      all; where act(gate) is not zero: the same bits as dense
//   kSign       where the signs predict it; of these, where act(gate) is not zero
//   kLowRank    where a low-rank predictor says so; of these, where act(gate) is not zero
//   kThreshold  all; where |act(gate)| reaches the layer's threshold
enum class FfnMode { kDense, kExact, kSign, kLowRank, kThreshold };
inline constexpr std::array<std::string_view, 5> kFfnModeNames = {"dense", "exact", "sign", "lowrank",
                                                                  "threshold"};

inline std::string_view FfnModeName(FfnMode mode) {
  return kFfnModeNames[static_cast<std::size_t>(mode)];
}
inline bool IsLossless(FfnMode mode) { return mode == FfnMode::kDense || mode == FfnMode::kExact; }
// InvalidArgument names the modes.
Result<FfnMode> ParseFfnMode(std::string_view name);

// "auto", one mode for all layers, or modes by layer: "0-3:dense,4-:sign". Layers count from 0; a
// later entry wins; layers that no entry names are exact where that is possible, else dense.
struct FfnModes {
  bool automatic = true;
  std::vector<FfnMode> layers;  // [L] unless automatic
};
// `otherwise`: of the layers that no entry names. InvalidArgument says which entry is wrong.
Result<FfnModes> ParseFfnModes(std::string_view text, int num_layers, FfnMode otherwise);

}  // namespace thermocline
