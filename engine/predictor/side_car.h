// The side-car of a model: the results of profiling, calibration and training for its feed-forward
// neurons. One file beside the model, by default MODEL.tcp.
//
// All numbers are little-endian.
//   offset 0   8 bytes  magic "TCSIDCAR"
//          8   u32      version, 1
//         12   u32      bytes of the JSON header
//         16   u64      bytes of the whole file
//         24   u64      zero
//         32   JSON     the header, below; zeros up to a multiple of 64
//              arrays   each at a multiple of 64 bytes, zeros between them
//   last 16    u64 u64  XXH3-128 (low, high) of everything before
// Header: {"model_hash", "hidden_size", "intermediate_size", "num_hidden_layers",
//   "profiled_tokens", "layers": [L of {
//     "activations": u32 [F], "down_norms": f32 [F], "alpha",
//     "sign": {"slices", "planes", "num_columns", "columns": i32 [C], "recall", "predicted_share",
//     "active_share", "missed_mass",
//              "thresholds": i32 [F]},
//     "threshold", "threshold_kept_mass",
//     "low_rank": {"rank", "before_norm", "threshold", "recall", "predicted_share",
//                  "active_share", "settings", "fc1": f16 [R, D], "fc2": f16 [F, R]},
//     "inputs": {"thresholds": f32 [points, 4], "weights": 4 x {"count", "values": f32 [count]}}}],
//   "input_points": [{"share", "kl", "perplexity_ratio"}]}
// Every member of a layer may be absent. An array is {"at": bytes from the end of the padded
// header, "count": elements}.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/status.h"

namespace thermocline::predictor {

// A neuron is predicted active if fc2 relu(fc1 x) >= threshold.
// Source: Deja Vu (Liu et al. 2023); PowerInfer, section 5.1: a separate rank for each layer.
struct LowRankPredictor {
  int rank = 0;              // R
  bool before_norm = false;  // x is the residual before the norm, not the network's input
  float threshold = 0;
  std::vector<std::uint16_t> fc1;  // [R, D] f16
  std::vector<std::uint16_t> fc2;  // [F, R] f16
  // Measured on held-out tokens. recall = active neurons that were predicted / active neurons.
  double recall = 0, predicted_share = 0, active_share = 0;
  std::string settings;  // training settings, to detect whether training must be repeated

  std::size_t bytes() const { return 2 * (fc1.size() + fc2.size()); }
};

// Integer thresholds of the sign predictor, one per neuron.
struct SignCalibration {
  int slices = 1;                          // bits of |x| that are used, at most kSignSlicesMax
  int planes = 1;                          // bits of the weights that are used, 1 or 2
  std::vector<std::int32_t> columns = {};  // [C] of the weights, ascending; empty = all
  std::vector<std::int32_t> thresholds;    // [F]
  // Measured on held-out tokens. missed_mass = share of sum |h_i| ||d_i|| that was not predicted.
  double recall = 0, predicted_share = 0, active_share = 0, missed_mass = 0;
};

// For mode inputs: input j of a matrix is used if |x_j| weights[j] reaches the threshold.
struct InputCalibration {
  // By kind of input (model::InputKind). Empty: only magnitudes count.
  std::array<std::vector<float>, 4> weights;
  std::vector<float> thresholds;  // [points, kinds], as SideCar::input_points
};

// Thresholds for all layers, and their effect on held-out text.
struct InputPoint {
  double share = 0;             // of the layers' bytes that are not read
  double kl = 0;                // nats per token, relative to the full model
  double perplexity_ratio = 1;  // relative to the full model's
};

struct LayerSideCar {
  std::vector<std::uint32_t> activations;  // [F] tokens that activated the neuron, or empty
  std::vector<float> down_norms;           // [F] ||d_i||, or empty
  std::optional<double> alpha;             // for the sign predictor without thresholds
  std::optional<SignCalibration> sign;
  std::optional<float> threshold;  // of mode `threshold`
  double threshold_kept_mass = 0;
  std::optional<LowRankPredictor> low_rank;
  std::optional<InputCalibration> inputs;
};

// The properties of a model that a side-car must match.
struct SideCarIdentity {
  std::string model_hash;     // model::Fingerprint
  int hidden_size = 0;        // D
  int intermediate_size = 0;  // F; of a mixture: experts of a layer
  int num_hidden_layers = 0;  // L
};

// Const after reading.
struct SideCar {
  std::string model_hash;
  int hidden_size = 0;                        // D
  int intermediate_size = 0;                  // F
  int num_hidden_layers = 0;                  // L
  std::int64_t profiled_tokens = 0;           // counted in LayerSideCar::activations
  std::vector<LayerSideCar> layers;           // [L]
  std::vector<InputPoint> input_points = {};  // ascending shares; empty: mode inputs is not
                                              // calibrated
};

std::string SideCarPath(const std::string& model_path);

// A side-car with L empty layers.
SideCar EmptySideCar(const SideCarIdentity& identity);

// NotFound; DataLoss: truncated or corrupt; FailedPrecondition: another model; Unimplemented: a
// newer version; InvalidArgument: impossible sizes or numbers. All messages name the file, the
// field, the value found and the value expected.
Result<SideCar> ReadSideCar(const std::string& path, const SideCarIdentity& expected);
// As ReadSideCar, but EmptySideCar if there is no file.
Result<SideCar> ReadSideCarOrEmpty(const std::string& path, const SideCarIdentity& expected);

// Writes atomically. InvalidArgument for a side-car that ReadSideCar would reject.
Status WriteSideCar(const std::string& path, const SideCar& side_car);

// InvalidArgument if sizes are inconsistent or a number is NaN or infinite; `path` begins the
// message.
Status ValidateSideCar(const std::string& path, const SideCar& side_car);

}  // namespace thermocline::predictor
