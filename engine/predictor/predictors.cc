#include "engine/predictor/predictors.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "engine/base/bytes.h"
#include "engine/base/index.h"
#include "engine/predictor/down_norms.h"
#include "kernels/quantize.h"

namespace thermocline::predictor {
namespace {

constexpr int kRowsPerItem = 64;

Status NoSideCar(const char* mode, const char* tool) {
  return base::FailedPrecondition(
      "mode '", mode, "' needs what `thermocline ", tool,
      "` writes into the model's side-car (MODEL.tcp), and there is none");
}

// Packs the bits of one matrix.
void PackMatrix(const model::NeuronMatrix& matrix, const std::vector<std::int32_t>& columns,
                base::WorkerPool& pool, std::uint64_t* sign, std::uint64_t* magnitude) {
  const int rows = matrix.linear.weight.rows, all = matrix.linear.weight.cols;
  const int cols = columns.empty() ? all : base::IntSize(columns);
  const std::size_t words = kernels::SignWords(cols);
  pool.Run((rows + kRowsPerItem - 1) / kRowsPerItem, [&](int item, int) {
    std::vector<float> values(all), chosen(values.size());
    for (int row = item * kRowsPerItem; row < std::min(rows, (item + 1) * kRowsPerItem); ++row) {
      const std::size_t at = row * words;
      DequantizeNeuron(matrix, row, values.data());
      GatherColumns(values.data(), all, columns, chosen.data());
      kernels::PackSigns(chosen.data(), cols, sign + at,
                         magnitude != nullptr ? magnitude + at : nullptr);
    }
  });
}

std::vector<std::int32_t> ThresholdsOf(const LayerSideCar* layer, const SignOptions& options,
                                       int index, int neurons, int cols) {
  if (layer != nullptr && layer->sign.has_value()) return layer->sign->thresholds;
  const double alpha =
      layer != nullptr && layer->alpha.has_value() ? *layer->alpha : options.alpha.of(index);
  const int thousandths = static_cast<int>(std::lround(alpha * 1000));
  return std::vector<std::int32_t>(neurons, kernels::SignThreshold(thousandths, cols));
}

// Rejects a calibration of only some layers, because the others would follow a rule that the user
// did not choose.
Status CheckAllOrNone(const SideCar* side_car, const SignOptions& options) {
  if (side_car == nullptr || !options.use_side_car) return OkStatus();
  const auto calibrated = [](const LayerSideCar& layer) {
    return layer.sign.has_value() || layer.alpha.has_value();
  };
  const auto& layers = side_car->layers;
  const auto missing = std::find_if_not(layers.begin(), layers.end(), calibrated);
  if (missing == layers.end() || std::none_of(layers.begin(), layers.end(), calibrated))
    return OkStatus();
  return base::FailedPrecondition("the side-car has no sign thresholds for layer ",
                                  missing - layers.begin(),
                                  ", but for others; run `thermocline calibrate` again");
}

kernels::DType PredictorType(int cols) {
  return cols % 32 == 0 ? kernels::DType::kQ8_0 : kernels::DType::kF16;
}

// Packs rows of f16 as a matrix in panels of Q8_0, or of f16 if the columns are not a multiple of
// 32.
Status Pack(const std::vector<std::uint16_t>& halves, int rows, int cols, Predictors& out,
            kernels::PackedMatrix& matrix) {
  using kernels::DType;
  const DType type = PredictorType(cols);
  const std::size_t row_bytes = kernels::RowBytes(type, cols);
  std::vector<std::uint8_t> stored(row_bytes * rows);
  std::vector<float> values(cols);
  for (int r = 0; r < rows; ++r) {
    const auto* row = reinterpret_cast<const std::uint8_t*>(halves.data() + base::Area(r, cols));
    kernels::DequantizeRow(DType::kF16, row, cols, values.data());
    kernels::QuantizeRow(type, values.data(), cols, stored.data() + r * row_bytes);
  }
  matrix = {type, rows, cols, nullptr};
  ASSIGN_OR_RETURN(base::HugeBuffer buffer, base::HugeBuffer::Allocate(matrix.bytes()));
  auto* data = base::Octets(buffer.data());
  for (int r = 0; r < rows; r += kernels::kPanelRows) {
    kernels::PackPanel(type, stored.data() + r * row_bytes, std::min(kernels::kPanelRows, rows - r),
                       cols, data + r * row_bytes);
  }
  matrix.data = data;
  out.bytes += matrix.bytes();
  out.memory.push_back(std::move(buffer));
  return OkStatus();
}

}  // namespace

const model::NeuronMatrix& DecidingMatrix(const model::LayerWeights& layer) {
  return layer.gate.linear.weight.rows > 0 ? layer.gate : layer.up;
}

void GatherColumns(const float* x, int cols, const std::vector<std::int32_t>& columns, float* out) {
  if (columns.empty()) {
    std::copy_n(x, cols, out);
    return;
  }
  for (const std::int32_t column : columns) *out++ = x[column];
}

void DequantizeNeuron(const model::NeuronMatrix& matrix, int row, float* out) {
  if (matrix.layout == model::Layout::kRows) {
    kernels::DequantizeMatrixRow(matrix.rows(), row, out);
  } else {
    kernels::DequantizePackedRow(matrix.linear.weight, row, out);
  }
}

Status AddSignPredictors(int layers, const LayerSource& weights, const SideCar* side_car,
                         const SignOptions& options, base::WorkerPool& pool, Predictors& out) {
  out.layers.resize(layers);
  RETURN_IF_ERROR(CheckAllOrNone(side_car, options));
  for (int l = 0; l < base::IntSize(out.layers); ++l) {
    ASSIGN_OR_RETURN(const model::LayerWeights* layer, weights(l));
    const model::NeuronMatrix& matrix = DecidingMatrix(*layer);
    const LayerSideCar* learnt =
        side_car != nullptr && options.use_side_car ? &side_car->layers[l] : nullptr;
    const bool calibrated = learnt != nullptr && learnt->sign.has_value();
    std::vector<std::int32_t> columns;
    if (calibrated) columns = learnt->sign->columns;
    const int rows = matrix.linear.weight.rows;
    const int cols = columns.empty() ? matrix.linear.weight.cols : base::IntSize(columns);
    const bool two = (calibrated ? learnt->sign->planes : options.planes) == 2;
    const std::size_t words = base::Area(rows, kernels::SignWords(cols));
    ASSIGN_OR_RETURN(base::HugeBuffer buffer,
                     base::HugeBuffer::Allocate(words * 8 * (two ? 2 : 1)));
    auto* sign = reinterpret_cast<std::uint64_t*>(buffer.data());
    std::uint64_t* magnitude = two ? sign + words : nullptr;
    PackMatrix(matrix, columns, pool, sign, magnitude);
    out.layers[l].sign = SignPredictor{.planes = {rows, cols, sign, magnitude},
                                       .columns = std::move(columns),
                                       .slices = calibrated ? learnt->sign->slices : options.slices,
                                       .thresholds = ThresholdsOf(learnt, options, l, rows, cols)};
    out.bytes += out.layers[l].sign->bytes();
    out.memory.push_back(std::move(buffer));
  }
  return OkStatus();
}

std::size_t SignPredictorBytes(const model::ModelConfig& config, const LayerSideCar* learnt,
                               const SignOptions& options) {
  const SignCalibration* sign =
      learnt != nullptr && options.use_side_car && learnt->sign.has_value() ? &*learnt->sign
                                                                            : nullptr;
  const int columns = sign != nullptr ? base::IntSize(sign->columns) : 0;
  const int cols = columns > 0 ? columns : config.hidden_size;
  const int planes = sign != nullptr ? sign->planes : options.planes;
  return base::Area(config.intermediate_size, kernels::SignWords(cols) * planes) * 8 +
         base::Area(config.intermediate_size + columns, 1) * sizeof(std::int32_t);
}

std::size_t LowRankBytes(const model::ModelConfig& config, const LayerSideCar* learnt) {
  if (learnt == nullptr || !learnt->low_rank.has_value()) return 0;
  const int rank = learnt->low_rank->rank, d = config.hidden_size, f = config.intermediate_size;
  return kernels::PackedMatrix{PredictorType(d), rank, d, nullptr}.bytes() +
         kernels::PackedMatrix{PredictorType(rank), f, rank, nullptr}.bytes();
}

Status AddLowRankPredictors(const model::ModelConfig& config, const model::Weights& weights,
                            const SideCar* side_car, Predictors& out) {
  const bool learnt = side_car != nullptr &&
                      std::any_of(side_car->layers.begin(), side_car->layers.end(),
                                  [](const LayerSideCar& l) { return l.low_rank.has_value(); });
  if (!learnt && !weights.has_low_rank()) return NoSideCar("lowrank", "train-predictor");
  out.layers.resize(weights.layers.size());
  for (std::size_t l = 0; l < weights.layers.size(); ++l) {
    LowRankRun run;
    if (learnt) {
      const auto& low_rank = side_car->layers[l].low_rank;
      if (!low_rank.has_value())
        return base::FailedPrecondition("the side-car has no low-rank predictor for layer ", l,
                                        "; run `thermocline train-predictor` for all layers");
      RETURN_IF_ERROR(Pack(low_rank->fc1, low_rank->rank, config.hidden_size, out, run.fc1));
      RETURN_IF_ERROR(Pack(low_rank->fc2, config.intermediate_size, low_rank->rank, out, run.fc2));
      run.threshold = low_rank->threshold;
      run.before_norm = low_rank->before_norm;
    } else {
      const model::LowRankWeights& stored = weights.layers[l].low_rank;
      run = {stored.fc1.weight, stored.fc2.weight, stored.threshold, /*before_norm=*/true};
    }
    out.layers[l].low_rank = run;
  }
  return OkStatus();
}

Status AddThresholds(const SideCar* side_car, Predictors& out) {
  if (side_car == nullptr) return NoSideCar("threshold", "calibrate --kind threshold");
  out.layers.resize(side_car->layers.size());
  for (std::size_t l = 0; l < out.layers.size(); ++l) {
    if (!side_car->layers[l].threshold.has_value())
      return base::FailedPrecondition("the side-car has no threshold for layer ", l,
                                      "; run `thermocline calibrate --kind threshold`");
    out.layers[l].threshold = side_car->layers[l].threshold;
  }
  return OkStatus();
}

Result<int> PointWithin(const std::vector<InputPoint>& points, double kl_max) {
  int within = -1;
  double least = INFINITY;
  for (int i = 0; i < base::IntSize(points); ++i) {
    least = std::min(least, points[i].kl);
    if (points[i].kl <= kl_max) within = i;
  }
  if (within >= 0) return within;
  return base::FailedPrecondition(
      "mode 'inputs': the calibration with the least loss has a KL of ", least,
      " nats, and at most ", kl_max,
      " are allowed (engine.kl_max, --kl-max, x_thermocline.kl_max); allow more, or calibrate with "
      "a smaller --share");
}

Status AddInputRules(const SideCar* side_car, double kl_max, Predictors& out) {
  if (side_car == nullptr || side_car->input_points.empty())
    return NoSideCar("inputs", "calibrate --kind inputs");
  ASSIGN_OR_RETURN(out.input_point, PointWithin(side_car->input_points, kl_max));
  out.input_points = side_car->input_points;
  const std::size_t points = out.input_points.size();
  out.layers.resize(side_car->layers.size());
  for (std::size_t l = 0; l < out.layers.size(); ++l) {
    const auto& learnt = side_car->layers[l].inputs;
    if (!learnt.has_value())
      return base::FailedPrecondition("the side-car has no inputs for layer ", l,
                                      "; run `thermocline calibrate --kind inputs`");
    InputRules& rules = out.layers[l].inputs.emplace();
    for (std::size_t kind = 0; kind < rules.of.size(); ++kind) {
      std::vector<float> thresholds(points);
      for (std::size_t point = 0; point < points; ++point)
        thresholds[point] = learnt->thresholds[point * rules.of.size() + kind];
      rules.of[kind] = {std::move(thresholds), learnt->weights[kind]};
    }
  }
  return OkStatus();
}

Status AddDownNorms(int layers, const LayerSource& weights, const SideCar* side_car,
                    base::WorkerPool& pool, Predictors& out) {
  out.layers.resize(layers);
  for (int l = 0; l < base::IntSize(out.layers); ++l) {
    if (side_car != nullptr && !side_car->layers[l].down_norms.empty()) {
      out.layers[l].down_norms = side_car->layers[l].down_norms;
      continue;
    }
    ASSIGN_OR_RETURN(const model::LayerWeights* layer, weights(l));
    out.layers[l].down_norms = DownNorms(*layer, pool);
  }
  return OkStatus();
}

}  // namespace thermocline::predictor
