#include "engine/predictor/side_car.h"

#include <algorithm>
#include <cmath>

#include "engine/base/file.h"
#include "kernels/sign_predict.h"

namespace thermocline::predictor {
namespace {

bool IsFinite(std::uint32_t) { return true; }
bool IsFinite(std::int32_t) { return true; }
bool IsFinite(float value) { return std::isfinite(value); }
bool IsFinite(double value) { return std::isfinite(value); }
bool IsFinite(std::uint16_t half) { return (half & 0x7C00) != 0x7C00; }

// Checks the members of one layer; messages begin with the file and the layer.
class LayerCheck {
 public:
  explicit LayerCheck(std::string where) : where_(std::move(where)) {}

  template <typename T>
  void Array(const char* field, const std::vector<T>& values, std::size_t expected) {
    if (values.size() != expected)
      return Fail(field, " has ", values.size(), " elements, expected ", expected);
    const auto bad =
        std::find_if_not(values.begin(), values.end(), [](T v) { return IsFinite(v); });
    if (bad != values.end())
      Fail(field, "[", bad - values.begin(), "] is NaN or infinite, expected a finite number");
  }
  void Number(const char* field, double value) {
    if (!IsFinite(value)) Fail(field, " is ", value, ", expected a finite number");
  }
  void Within(const char* field, double value, double least, double most) {
    if (!(value >= least && value <= most))
      Fail(field, " is ", value, ", expected ", least, " to ", most);
  }
  void AtLeastZero(const char* field, double value) {
    if (!(value >= 0 && IsFinite(value))) Fail(field, " is ", value, ", expected at least 0");
  }
  // 0 to 1.
  void ShareOf(const char* field, double value) {
    if (!(value >= 0 && value <= 1)) Fail(field, " is ", value, ", expected 0 to 1");
  }
  void AtLeastOne(const char* field, int value) {
    if (value < 1) Fail(field, " is ", value, ", expected at least 1");
  }
  const Status& status() const { return status_; }

  template <typename... Pieces>
  void Fail(const Pieces&... pieces) {
    if (status_.ok()) {
      status_ = base::InvalidArgument(where_, pieces...,
                                      "; make it anew with `thermocline profile`, `calibrate` or "
                                      "`train-predictor`");
    }
  }

 private:
  std::string where_;
  Status status_;
};

void CheckSign(const SignCalibration& sign, std::size_t d, std::size_t f, LayerCheck& check) {
  if (sign.slices < 1 || sign.slices > kernels::kSignSlicesMax)
    check.Fail("sign.slices is ", sign.slices, ", expected 1 to ", kernels::kSignSlicesMax);
  if (sign.planes < 1 || sign.planes > 2)
    check.Fail("sign.planes is ", sign.planes, ", expected 1 or 2");
  std::int32_t before = -1;
  for (const std::int32_t column : sign.columns) {
    if (column <= before || column >= static_cast<std::int32_t>(d)) {
      check.Fail("sign.columns has ", column, " after ", before, ", expected rising numbers below ",
                 d);
      break;
    }
    before = column;
  }
  check.Array("sign.thresholds", sign.thresholds, f);
  check.ShareOf("sign.recall", sign.recall);
  check.ShareOf("sign.predicted_share", sign.predicted_share);
  check.ShareOf("sign.active_share", sign.active_share);
  check.ShareOf("sign.missed_mass", sign.missed_mass);
}

void CheckLowRank(const LowRankPredictor& p, std::size_t d, std::size_t f, LayerCheck& check) {
  check.AtLeastOne("low_rank.rank", p.rank);
  const std::size_t rank = std::max(0, p.rank);
  check.Array("low_rank.fc1", p.fc1, rank * d);
  check.Array("low_rank.fc2", p.fc2, f * rank);
  check.Number("low_rank.threshold", p.threshold);
  check.ShareOf("low_rank.recall", p.recall);
  check.ShareOf("low_rank.predicted_share", p.predicted_share);
  check.ShareOf("low_rank.active_share", p.active_share);
}

void CheckInputs(const InputCalibration& inputs, std::size_t points, LayerCheck& check) {
  check.Array("inputs.thresholds", inputs.thresholds, points * inputs.weights.size());
  for (const float threshold : inputs.thresholds) check.AtLeastZero("inputs.thresholds", threshold);
  for (const auto& weights : inputs.weights) {
    check.Array("inputs.weights", weights, weights.size());
    for (const float weight : weights) check.AtLeastZero("inputs.weights", weight);
  }
}

Status CheckPoints(const std::string& path, const std::vector<InputPoint>& points) {
  LayerCheck check(path + ": ");
  for (const InputPoint& point : points) {
    check.ShareOf("input_points.share", point.share);
    check.AtLeastZero("input_points.kl", point.kl);
    check.AtLeastZero("input_points.perplexity_ratio", point.perplexity_ratio);
  }
  return check.status();
}

}  // namespace

std::string SideCarPath(const std::string& model_path) {
  const std::size_t end = model_path.find_last_not_of('/');  // a folder's path may end in one
  return model_path.substr(0, end == std::string::npos ? end : end + 1) + ".tcp";
}

SideCar EmptySideCar(const SideCarIdentity& identity) {
  return {.model_hash = identity.model_hash,
          .hidden_size = identity.hidden_size,
          .intermediate_size = identity.intermediate_size,
          .num_hidden_layers = identity.num_hidden_layers,
          .profiled_tokens = 0,
          .layers = std::vector<LayerSideCar>(identity.num_hidden_layers)};
}

Result<SideCar> ReadSideCarOrEmpty(const std::string& path, const SideCarIdentity& expected) {
  if (!base::PathExists(path)) return EmptySideCar(expected);
  return ReadSideCar(path, expected);
}

Status ValidateSideCar(const std::string& path, const SideCar& s) {
  if (s.hidden_size < 1 || s.intermediate_size < 1 || s.num_hidden_layers < 1 ||
      s.profiled_tokens < 0) {
    return base::InvalidArgument(path, ": hidden_size ", s.hidden_size, ", intermediate_size ",
                                 s.intermediate_size, ", num_hidden_layers ", s.num_hidden_layers,
                                 " and profiled_tokens ", s.profiled_tokens,
                                 " must not be below 1, 1, 1 and 0");
  }
  if (s.layers.size() != static_cast<std::size_t>(s.num_hidden_layers)) {
    return base::InvalidArgument(path, ": layers has ", s.layers.size(),
                                 " entries, num_hidden_layers says ", s.num_hidden_layers);
  }
  RETURN_IF_ERROR(CheckPoints(path, s.input_points));
  const std::size_t d = s.hidden_size;
  const std::size_t f = s.intermediate_size;
  for (std::size_t i = 0; i < s.layers.size(); ++i) {
    const LayerSideCar& layer = s.layers[i];
    LayerCheck check(StrCat(path, ": layer ", i, ": "));
    if (!layer.activations.empty()) check.Array("activations", layer.activations, f);
    if (!layer.down_norms.empty()) check.Array("down_norms", layer.down_norms, f);
    if (layer.alpha.has_value()) check.Within("alpha", *layer.alpha, 0, 100);
    if (layer.sign.has_value()) CheckSign(*layer.sign, d, f, check);
    if (layer.threshold.has_value()) check.AtLeastZero("threshold", *layer.threshold);
    check.ShareOf("threshold_kept_mass", layer.threshold_kept_mass);
    if (layer.low_rank.has_value()) CheckLowRank(*layer.low_rank, d, f, check);
    if (layer.inputs.has_value()) CheckInputs(*layer.inputs, s.input_points.size(), check);
    RETURN_IF_ERROR(check.status());
  }
  return OkStatus();
}

}  // namespace thermocline::predictor
