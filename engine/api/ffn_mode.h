// The modes of computing a feed-forward network: which neurons' rows are read.
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
//   kInputs     of all matrices, attention's too, the weights of inputs that reach a threshold
enum class FfnMode { kDense, kExact, kSign, kLowRank, kThreshold, kInputs };
inline constexpr std::array<std::string_view, 6> kFfnModeNames = {"dense",   "exact",     "sign",
                                                                  "lowrank", "threshold", "inputs"};

inline std::string_view FfnModeName(FfnMode mode) {
  return kFfnModeNames[static_cast<std::size_t>(mode)];
}
inline bool IsLossless(FfnMode mode) { return mode == FfnMode::kDense || mode == FfnMode::kExact; }
// InvalidArgument names the modes.
Result<FfnMode> ParseFfnMode(std::string_view name);

// "dense,sign" as modes. InvalidArgument names the modes.
Result<std::vector<FfnMode>> ParseFfnModeList(std::string_view text);

// "auto", one mode for all layers, or modes by layer: "0-3:dense,4-:sign". Layers count from 0; a
// later entry wins; layers that no entry names are exact where that is possible, else dense.
struct FfnModes {
  bool automatic = true;
  std::vector<FfnMode> layers;  // [L] unless automatic
};
// `otherwise`: of the layers that no entry names. InvalidArgument says which entry is wrong.
Result<FfnModes> ParseFfnModes(std::string_view text, int num_layers, FfnMode otherwise);

// Predictors whose predictions are audited where layers are computed without loss. kAuto: what the
// side-car has learnt, if it lies beside the model.
enum class AuditShadow { kOff, kAuto, kSign, kLowRank };
inline constexpr std::array<std::string_view, 4> kAuditShadowNames = {"off", "auto", "sign",
                                                                      "lowrank"};

// The layout in memory of a down projection that the file has along columns. kAuto: neuron-major
// where that is measured to pay and no weight is rounded; kFile: as in the file; kRows:
// neuron-major, quantised weights rounded once more.
enum class DownInMemory { kAuto, kFile, kRows };
inline constexpr std::array<std::string_view, 3> kDownInMemoryNames = {"auto", "file", "rows"};

// Mode inputs: whether matrices are held input-major, too, so that weights of inputs that do not
// count are not read (quantised ones rounded once more), or only as in the file.
enum class InputLayout { kRows, kFile };
inline constexpr std::array<std::string_view, 2> kInputLayoutNames = {"rows", "file"};

// The highest bound on the divergence of mode inputs, and the bound if the mode is named without
// one.
inline constexpr double kKlMaxMax = 100, kKlMaxByName = 0.05;

// A user's choices for the feed-forward networks at load.
struct FfnOptions {
  std::string modes = "auto";  // as ParseFfnModes reads it
  std::string also = {};       // further modes that requests may ask for: "sign,lowrank"
  std::string side_car = {};   // path; "" = MODEL.tcp if there is one
  DownInMemory down = DownInMemory::kAuto;  // measured where `modes` is "auto"
  // auto: the least held-out recall of a predicted mode. 1 = modes without loss only.
  double recall = 1.0;
  // Mode inputs: of the points that were calibrated, the one that reads least with at most so much
  // divergence (nats a token) from the whole model. 0: 0.05, and only where the mode is named;
  // else `auto` takes it, too, where it is faster.
  double kl_max = 0;
  double KlMaxOfNamed() const { return kl_max > 0 ? kl_max : kKlMaxByName; }
  InputLayout input_layout = InputLayout::kRows;
  // Mode sign, where the side-car has no thresholds: skip where negatives > alpha * positives, in
  // the first layers; alpha is 1 in the others. Source: SparseInfer, section 5.1.
  double sign_alpha = 1.0;
  int sign_alpha_layers = 20;
  int sign_slices = 1;              // bits of the input that count
  int sign_planes = 1;              // bits of the weights that count
  bool ignore_calibration = false;  // use alpha though the side-car has thresholds
  // One of so many decoded tokens is audited; 0 = none.
  int audit_interval = 0;
  AuditShadow audit_shadow = AuditShadow::kOff;
  // Recall that the controller holds by moving the predictors' thresholds; 0 = they stay.
  double controller_recall = 0;

  // True if `mode` is asked for, by some layer or by requests.
  bool Names(FfnMode mode) const {
    const std::string_view name = FfnModeName(mode);
    return modes.find(name) != std::string::npos || also.find(name) != std::string::npos;
  }
};

}  // namespace thermocline
