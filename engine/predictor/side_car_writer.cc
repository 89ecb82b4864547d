#include <algorithm>
#include <span>

#include "engine/base/file.h"
#include "engine/base/hash.h"
#include "engine/base/json.h"
#include "engine/predictor/side_car.h"
#include "engine/predictor/side_car_format.h"

namespace thermocline::predictor {
namespace {

// The header, and its arrays in the order of the file.
class Plan {
 public:
  explicit Plan(const SideCar& s) {
    Json::Array layers;
    for (const LayerSideCar& layer : s.layers) layers.push_back(LayerJson(layer));
    Json header(Json::Object{{"model_hash", s.model_hash},
                             {"hidden_size", s.hidden_size},
                             {"intermediate_size", s.intermediate_size},
                             {"num_hidden_layers", s.num_hidden_layers},
                             {"profiled_tokens", s.profiled_tokens},
                             {"layers", std::move(layers)}});
    if (!s.input_points.empty()) header.Set("input_points", PointsJson(s.input_points));
    header_ = header.Dump();
  }

  const std::string& header() const { return header_; }
  const std::vector<std::span<const std::byte>>& arrays() const { return arrays_; }
  std::uint64_t bytes() const { return bytes_; }  // of the arrays, padded

 private:
  template <typename T>
  Json ArrayJson(const std::vector<T>& values) {
    const std::span<const std::byte> bytes = std::as_bytes(std::span(values));
    const std::uint64_t at = bytes_;
    arrays_.push_back(bytes);
    bytes_ += SideCarAligned(bytes.size());
    return Json::Object{{"at", at}, {"count", values.size()}};
  }

  Json SignJson(const SignCalibration& sign) {
    return Json::Object{{"slices", sign.slices},
                        {"planes", sign.planes},
                        {"recall", sign.recall},
                        {"predicted_share", sign.predicted_share},
                        {"active_share", sign.active_share},
                        {"missed_mass", sign.missed_mass},
                        {"num_columns", sign.columns.size()},
                        {"columns", ArrayJson(sign.columns)},
                        {"thresholds", ArrayJson(sign.thresholds)}};
  }

  Json LowRankJson(const LowRankPredictor& p) {
    Json out = Json::Object{{"rank", p.rank},
                            {"before_norm", p.before_norm},
                            {"threshold", p.threshold},
                            {"recall", p.recall},
                            {"predicted_share", p.predicted_share},
                            {"active_share", p.active_share},
                            {"settings", p.settings}};
    out.Set("fc1", ArrayJson(p.fc1));
    out.Set("fc2", ArrayJson(p.fc2));
    return out;
  }

  static Json PointsJson(const std::vector<InputPoint>& points) {
    Json::Array out;
    for (const InputPoint& p : points)
      out.push_back(
          Json::Object{{"share", p.share}, {"kl", p.kl}, {"perplexity_ratio", p.perplexity_ratio}});
    return out;
  }

  Json InputsJson(const InputCalibration& inputs) {
    Json::Array weights;
    for (const std::vector<float>& of : inputs.weights)
      weights.push_back(Json::Object{{"count", of.size()}, {"values", ArrayJson(of)}});
    return Json::Object{{"thresholds", ArrayJson(inputs.thresholds)},
                        {"weights", std::move(weights)}};
  }

  Json LayerJson(const LayerSideCar& layer) {
    Json out{Json::Object()};
    if (!layer.activations.empty()) out.Set("activations", ArrayJson(layer.activations));
    if (!layer.down_norms.empty()) out.Set("down_norms", ArrayJson(layer.down_norms));
    if (layer.alpha.has_value()) out.Set("alpha", *layer.alpha);
    if (layer.sign.has_value()) out.Set("sign", SignJson(*layer.sign));
    if (layer.threshold.has_value()) {
      out.Set("threshold", *layer.threshold);
      out.Set("threshold_kept_mass", layer.threshold_kept_mass);
    }
    if (layer.low_rank.has_value()) out.Set("low_rank", LowRankJson(*layer.low_rank));
    if (layer.inputs.has_value()) out.Set("inputs", InputsJson(*layer.inputs));
    return out;
  }

  std::string header_;
  std::vector<std::span<const std::byte>> arrays_;
  std::uint64_t bytes_ = 0;
};

// Writes bytes and hashes them.
class HashedWriter {
 public:
  explicit HashedWriter(base::FileWriter& file) : file_(file) {}

  Status Append(std::span<const std::byte> bytes) {
    hasher_.Add(bytes);
    return file_.Append(bytes);
  }
  Status Pad() {
    static constexpr std::byte kZeros[kSideCarAlignment] = {};
    const std::uint64_t at = file_.bytes_written();
    return Append(std::span(kZeros).first(SideCarAligned(at) - at));
  }
  Status AppendChecksum() {
    const base::Hash128 hash = hasher_.Digest();
    const SideCarChecksum checksum{.low = hash.low, .high = hash.high};
    return file_.Append(std::as_bytes(std::span(&checksum, 1)));
  }

 private:
  base::FileWriter& file_;
  base::Hasher hasher_;
};

}  // namespace

Status WriteSideCar(const std::string& path, const SideCar& side_car) {
  RETURN_IF_ERROR(ValidateSideCar(path, side_car));
  const Plan plan(side_car);
  const std::string& header = plan.header();
  SideCarPrefix prefix;
  std::copy(kSideCarMagic.begin(), kSideCarMagic.end(), prefix.magic);
  prefix.version = kSideCarVersion;
  prefix.header_bytes = static_cast<std::uint32_t>(header.size());
  prefix.file_bytes =
      SideCarAligned(sizeof(prefix) + header.size()) + plan.bytes() + sizeof(SideCarChecksum);
  ASSIGN_OR_RETURN(const auto file, base::FileWriter::Create(path));
  HashedWriter writer(*file);
  RETURN_IF_ERROR(writer.Append(std::as_bytes(std::span(&prefix, 1))));
  RETURN_IF_ERROR(writer.Append(std::as_bytes(std::span(header))));
  RETURN_IF_ERROR(writer.Pad());
  for (const auto array : plan.arrays()) {
    RETURN_IF_ERROR(writer.Append(array));
    RETURN_IF_ERROR(writer.Pad());
  }
  RETURN_IF_ERROR(writer.AppendChecksum());
  return file->Commit();
}

}  // namespace thermocline::predictor
