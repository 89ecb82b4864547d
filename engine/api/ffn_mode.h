// The modes of computing a feed-forward network: which neurons' rows are read.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/index.h"
#include "engine/base/status.h"

namespace thermocline {

// gate rows read; up and down rows read:
//   kDense      all; all
//   kExact      all; where act(gate) is not zero: the same bits as dense
//   kSign       where the signs predict it; of these, where act(gate) is not zero
//   kLowRank    where a low-rank predictor predicts it; of these, where act(gate) is not zero
//   kThreshold  all; where |act(gate)| reaches the layer's threshold
//   kInputs     of all matrices, including attention's, the weights of inputs that reach a
//   threshold
enum class FfnMode { kDense, kExact, kSign, kLowRank, kThreshold, kInputs };
inline constexpr std::array<std::string_view, 6> kFfnModeNames = {"dense",   "exact",     "sign",
                                                                  "lowrank", "threshold", "inputs"};

inline std::string_view FfnModeName(FfnMode mode) { return kFfnModeNames[base::Index(mode)]; }
inline bool IsLossless(FfnMode mode) { return mode == FfnMode::kDense || mode == FfnMode::kExact; }
// InvalidArgument names the modes.
Result<FfnMode> ParseFfnMode(std::string_view name);

// "dense,sign" as modes. InvalidArgument names the modes.
Result<std::vector<FfnMode>> ParseFfnModeList(std::string_view text);

// "auto", one mode for all layers, or modes by layer: "0-3:dense,4-:sign". Layers count from 0; a
// later entry wins; layers without an entry are exact if possible, otherwise dense.
struct FfnModes {
  bool automatic = true;
  std::vector<FfnMode> layers;  // [L] unless automatic
};
// `otherwise`: the mode of layers without an entry. InvalidArgument names the wrong entry.
Result<FfnModes> ParseFfnModes(std::string_view text, int num_layers, FfnMode otherwise);

// Predictors whose predictions are audited in layers that are computed without loss. kAuto: the
// predictors that the side-car has trained, if there is a side-car beside the model.
enum class AuditShadow { kOff, kAuto, kSign, kLowRank };
inline constexpr std::array<std::string_view, 4> kAuditShadowNames = {"off", "auto", "sign",
                                                                      "lowrank"};

// The layout in memory of a down projection that the file has along columns. kAuto: neuron-major if
// that is measured to be faster and no weight is rounded; kFile: as in the file; kRows:
// neuron-major, quantised weights rounded once more.
enum class DownInMemory { kAuto, kFile, kRows };
inline constexpr std::array<std::string_view, 3> kDownInMemoryNames = {"auto", "file", "rows"};

// Mode inputs: matrices are also held input-major, so that the weights of inputs below the
// threshold are not read (quantised weights are rounded once more), or only as in the file.
enum class InputLayout { kRows, kFile };
inline constexpr std::array<std::string_view, 2> kInputLayoutNames = {"rows", "file"};

// The highest bound on the divergence of mode inputs, and the bound if the mode is named without
// one.
inline constexpr double kKlMaxMax = 100, kKlMaxByName = 0.05;

// A user's options for the feed-forward networks, applied at load.
struct FfnOptions {
  std::string modes = "auto";  // as ParseFfnModes reads it
  std::string also = {};       // further modes that requests may choose: "sign,lowrank"
  std::string side_car = {};   // path; "" = MODEL.tcp if there is one
  DownInMemory down = DownInMemory::kAuto;  // measured where `modes` is "auto"
  // auto: the least held-out recall of a predicted mode. 1 = modes without loss only.
  double recall = 1.0;
  // Mode inputs: among the calibrated points, takes the one that reads least with at most this
  // divergence (nats per token) from the full model. 0: the bound is 0.05, and the mode is used
  // only if it is named. Above 0, `auto` uses the mode too where it is faster.
  double kl_max = 0;
  double KlMaxOfNamed() const { return kl_max > 0 ? kl_max : kKlMaxByName; }
  InputLayout input_layout = InputLayout::kRows;
  // Mode sign without thresholds in the side-car: a neuron is skipped if negatives > alpha *
  // positives, in the first layers; in the others alpha is 1. Source: SparseInfer, section 5.1.
  double sign_alpha = 1.0;
  int sign_alpha_layers = 20;
  int sign_slices = 1;              // bits of each input that are used
  int sign_planes = 1;              // bits of each weight that are used
  bool ignore_calibration = false;  // use alpha even if the side-car has thresholds
  // One in this many decoded tokens is audited; 0 = none.
  int audit_interval = 0;
  AuditShadow audit_shadow = AuditShadow::kOff;
  // Recall that the controller keeps by adjusting the predictors' thresholds; 0 = no controller.
  double controller_recall = 0;

  // True if `mode` is chosen for some layer or for requests.
  bool Names(FfnMode mode) const {
    const std::string_view name = FfnModeName(mode);
    return modes.find(name) != std::string::npos || also.find(name) != std::string::npos;
  }
};

}  // namespace thermocline
