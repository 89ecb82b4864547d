// The predictors of active neurons, ready to run. Const after loading.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "engine/base/huge_buffer.h"
#include "engine/base/index.h"
#include "engine/base/worker_pool.h"
#include "engine/model/weights/weights.h"
#include "engine/predictor/side_car.h"
#include "kernels/sign_predict.h"

namespace thermocline::predictor {

// Signs of the gate's weights (of up's if there is no gate) and the least score of each neuron.
struct SignPredictor {
  kernels::SignPlanes planes;         // of the selected columns
  std::vector<std::int32_t> columns;  // of the weights, ascending; empty = all
  int slices = 1;
  std::vector<std::int32_t> thresholds;  // [F]

  std::size_t bytes() const {
    return base::Area(planes.rows, kernels::SignWords(planes.cols)) * 8 *
           (planes.magnitude != nullptr ? 2 : 1);
  }
  // Words of 32 signs compared per token.
  std::int64_t operations() const { return static_cast<std::int64_t>(bytes() / 4) * slices; }
};

struct LowRankRun {
  kernels::PackedMatrix fc1;  // [R, D]
  kernels::PackedMatrix fc2;  // [F, R]
  float threshold = 0;
  bool before_norm = false;  // its input is the residual; otherwise the input of gate and up

  std::size_t bytes() const { return fc1.bytes() + fc2.bytes(); }
  // Multiply-adds per token.
  std::int64_t operations() const {
    return base::Area(fc1.rows, fc1.cols) + base::Area(fc2.rows, fc2.cols);
  }
};

// The rules that decide which inputs of a layer's matrices are used, by kind (model::InputKind).
struct InputRules {
  struct Rule {
    std::vector<float> thresholds = {0};  // as Predictors::input_points; 0: all are used
    std::vector<float> weights = {};      // [inputs], or empty: only magnitudes count
  };
  std::array<Rule, 4> of;
};

struct LayerPredictors {
  std::optional<SignPredictor> sign;
  std::optional<LowRankRun> low_rank;
  std::optional<float> threshold;    // of mode `threshold`
  std::optional<InputRules> inputs;  // of mode inputs
  std::vector<float> down_norms;     // [F] ||d_i||, empty without audits
};

struct Predictors {
  std::vector<LayerPredictors> layers;        // [L]
  std::vector<base::HugeBuffer> memory;       // of the planes and matrices above
  std::size_t bytes = 0;                      // of all of them
  std::vector<InputPoint> input_points = {};  // of mode inputs, by ascending share; empty: no rules
  int input_point = 0;                        // the default among these

  bool HasSign() const { return !layers.empty() && layers[0].sign.has_value(); }
  bool HasLowRank() const { return !layers.empty() && layers[0].low_rank.has_value(); }
};

// SparseInfer's preset: one alpha for the first layers, 1 for the rest.
// Source: SparseInfer, section 5.1: 1.00 to 1.03 in the first 20 layers.
struct AlphaSchedule {
  double alpha = 1.0;
  int layers = 20;
  double of(int layer) const { return layer < layers ? alpha : 1.0; }
};

struct SignOptions {
  int slices = 1;  // if the side-car has thresholds, its own value is used
  int planes = 1;
  AlphaSchedule alpha;
  bool use_side_car = true;  // use the side-car's thresholds or alphas, if it has them
};

// Copies the elements of x selected by `columns`, or all if it is empty.
void GatherColumns(const float* x, int cols, const std::vector<std::int32_t>& columns, float* out);

// The weights of one layer: from a loaded model, or loaded for the call and valid until the next
// call.
using LayerSource = std::function<Result<const model::LayerWeights*>(int layer)>;

// Builds the planes from the deciding rows of every layer. `side_car` may be null.
Status AddSignPredictors(int layers, const LayerSource& weights, const SideCar* side_car,
                         const SignOptions& options, base::WorkerPool& pool, Predictors& out);
// Bytes of a layer's planes and thresholds. `learnt`: the layer in the side-car, null if there is
// none.
std::size_t SignPredictorBytes(const model::ModelConfig& config, const LayerSideCar* learnt,
                               const SignOptions& options);
// Adds the low-rank predictors of the side-car, otherwise those of the model's file.
// FailedPrecondition if neither has any.
Status AddLowRankPredictors(const model::ModelConfig& config, const model::Weights& weights,
                            const SideCar* side_car, Predictors& out);
// Bytes of a layer's two matrices; 0 if the side-car (null: there is none) does not contain them.
std::size_t LowRankBytes(const model::ModelConfig& config, const LayerSideCar* learnt);
// FailedPrecondition if the side-car has none.
Status AddThresholds(const SideCar* side_car, Predictors& out);
// Index of the point that reads least with a divergence of at most `kl_max`, nats per token.
// FailedPrecondition if there is none.
Result<int> PointWithin(const std::vector<InputPoint>& points, double kl_max);
// Adds the rules of all points; PointWithin gives the default point of requests. FailedPrecondition
// if there are none.
Status AddInputRules(const SideCar* side_car, double kl_max, Predictors& out);
// Norms of the down rows: from the side-car, otherwise computed.
Status AddDownNorms(int layers, const LayerSource& weights, const SideCar* side_car,
                    base::WorkerPool& pool, Predictors& out);

// The matrix whose rows decide if a neuron is active: gate, or up if there is no gate.
const model::NeuronMatrix& DecidingMatrix(const model::LayerWeights& layer);
// Row `row` as floats.
void DequantizeNeuron(const model::NeuronMatrix& matrix, int row, float* out);
}  // namespace thermocline::predictor
