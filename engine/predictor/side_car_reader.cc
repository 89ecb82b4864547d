#include <algorithm>
#include <cctype>
#include <cmath>

#include "engine/base/file.h"
#include "engine/base/hash.h"
#include "engine/base/header_fields.h"
#include "engine/base/json_limits.h"
#include "engine/predictor/side_car.h"
#include "engine/predictor/side_car_format.h"
#include "kernels/sign_predict.h"

namespace thermocline::predictor {
namespace {

using base::ArrayArea;
using base::HeaderFields;

constexpr std::int64_t kRankMax = 1 << 20;
constexpr const char* kMakeAnew =
    "; delete it and make it anew with `thermocline profile`, `calibrate` or `train-predictor`";

Status Damaged(const base::File& file, std::string_view what) {
  return base::DataLoss(file.path(), ": ", what, kMakeAnew);
}

// Reads the prefix and checks its sizes against the file's size.
Result<SideCarPrefix> ReadPrefix(const base::File& file) {
  SideCarPrefix prefix;
  if (file.size() < sizeof(prefix) + sizeof(SideCarChecksum)) {
    return Damaged(file, StrCat("a side-car of ", file.size(), " bytes, expected at least ",
                                sizeof(prefix) + sizeof(SideCarChecksum), "; it is cut off"));
  }
  RETURN_IF_ERROR(file.ReadAt(0, std::as_writable_bytes(std::span(&prefix, 1))));
  if (!std::equal(kSideCarMagic.begin(), kSideCarMagic.end(), prefix.magic)) {
    return base::InvalidArgument(file.path(), ": not a side-car: it does not begin with ",
                                 kSideCarMagic, "; give another side-car or delete it");
  }
  if (prefix.version != kSideCarVersion) {
    return base::Unimplemented(file.path(), ": version is ", prefix.version,
                               ", this program reads ", kSideCarVersion,
                               "; use a newer program or make the file anew");
  }
  if (prefix.file_bytes != file.size()) {
    return Damaged(file, StrCat("file_bytes is ", prefix.file_bytes, ", the file has ", file.size(),
                                "; it is cut off or damaged"));
  }
  if (SideCarAligned(sizeof(prefix) + std::uint64_t{prefix.header_bytes}) +
          sizeof(SideCarChecksum) >
      file.size()) {
    return Damaged(file, StrCat("header_bytes is ", prefix.header_bytes, ", more than the file's ",
                                file.size(), " bytes hold"));
  }
  return prefix;
}

Status VerifyChecksum(const base::File& file) {
  constexpr std::uint64_t kPiece = 1 << 20;
  const std::uint64_t end = file.size() - sizeof(SideCarChecksum);
  base::Hasher hasher;
  std::vector<std::byte> piece(std::min(kPiece, end));
  for (std::uint64_t at = 0; at < end; at += kPiece) {
    const std::span<std::byte> bytes = std::span(piece).first(std::min(kPiece, end - at));
    RETURN_IF_ERROR(file.ReadAt(at, bytes));
    hasher.Add(bytes);
  }
  SideCarChecksum stored;
  RETURN_IF_ERROR(file.ReadAt(end, std::as_writable_bytes(std::span(&stored, 1))));
  const base::Hash128 expected{.low = stored.low, .high = stored.high};
  const base::Hash128 found = hasher.Digest();
  if (found == expected) return OkStatus();
  return Damaged(file, StrCat("checksum is ", found.Hex(), ", expected ", expected.Hex(),
                              "; the file is damaged"));
}

SignCalibration ReadSign(HeaderFields fields, std::int64_t d, std::int64_t f,
                         const ArrayArea& area) {
  SignCalibration sign;
  sign.slices = fields.Int32("slices", 1, kernels::kSignSlicesMax);
  sign.planes = fields.Int32("planes", 1, 2);
  sign.recall = fields.Number("recall");
  sign.predicted_share = fields.Number("predicted_share");
  sign.active_share = fields.Number("active_share");
  sign.missed_mass = fields.Number("missed_mass");
  sign.columns = fields.Array<std::int32_t>("columns", fields.Int("num_columns", 0, d), area);
  sign.thresholds = fields.Array<std::int32_t>("thresholds", f, area);
  return sign;
}

LowRankPredictor ReadLowRank(HeaderFields fields, std::int64_t d, std::int64_t f,
                             const ArrayArea& area) {
  LowRankPredictor p;
  p.rank = fields.Int32("rank", 1, kRankMax);
  p.before_norm = fields.Bool("before_norm");
  p.threshold = fields.Float("threshold");
  p.recall = fields.Number("recall");
  p.predicted_share = fields.Number("predicted_share");
  p.active_share = fields.Number("active_share");
  p.settings = fields.Text("settings");
  p.fc1 = fields.Array<std::uint16_t>("fc1", p.rank * d, area);
  p.fc2 = fields.Array<std::uint16_t>("fc2", f * p.rank, area);
  return p;
}

InputCalibration ReadInputs(HeaderFields fields, std::int64_t points, const ArrayArea& area,
                            Status& status) {
  InputCalibration inputs;
  const std::int64_t kinds = inputs.weights.size();
  inputs.thresholds = fields.Array<float>("thresholds", points * kinds, area);
  const Json::Array& all = fields.List("weights", inputs.weights.size());
  for (std::size_t kind = 0; kind < inputs.weights.size() && status.ok(); ++kind) {
    HeaderFields of(all[kind], "inputs.weights: ", kMakeAnew, status);
    const std::int64_t count = of.Int("count", 0, kRankMax);
    inputs.weights[kind] = of.Array<float>("values", count, area);
  }
  return inputs;
}

InputPoint ReadPoint(HeaderFields fields) {
  return {.share = fields.Number("share"),
          .kl = fields.Number("kl"),
          .perplexity_ratio = fields.Number("perplexity_ratio")};
}

LayerSideCar ReadLayer(const Json& json, const std::string& where, const SideCar& s,
                       const ArrayArea& area, Status& status) {
  LayerSideCar layer;
  HeaderFields fields(json, where, kMakeAnew, status);
  const std::int64_t d = s.hidden_size, f = s.intermediate_size;
  if (fields.Optional("activations") != nullptr)
    layer.activations = fields.Array<std::uint32_t>("activations", f, area);
  if (fields.Optional("down_norms") != nullptr)
    layer.down_norms = fields.Array<float>("down_norms", f, area);
  if (fields.Optional("alpha") != nullptr) layer.alpha = fields.Number("alpha");
  if (const Json* sign = fields.Optional("sign"))
    layer.sign = ReadSign(HeaderFields(*sign, where + "sign.", kMakeAnew, status), d, f, area);
  if (fields.Optional("threshold") != nullptr) {
    layer.threshold = fields.Float("threshold");
    layer.threshold_kept_mass = fields.Number("threshold_kept_mass");
  }
  if (const Json* low_rank = fields.Optional("low_rank"))
    layer.low_rank =
        ReadLowRank(HeaderFields(*low_rank, where + "low_rank.", kMakeAnew, status), d, f, area);
  if (const Json* inputs = fields.Optional("inputs"))
    layer.inputs = ReadInputs(HeaderFields(*inputs, where + "inputs.", kMakeAnew, status),
                              s.input_points.size(), area, status);
  return layer;
}

Status CheckIdentity(const std::string& path, const Json& header, const SideCarIdentity& expected) {
  const Json* hash = header.Find("model_hash");
  const std::string found = hash != nullptr && hash->is_string() ? hash->as_string() : "-";
  const auto is_digit = [](unsigned char c) { return std::isxdigit(c) != 0; };
  if (found.size() > 64 || !std::all_of(found.begin(), found.end(), is_digit))
    return base::InvalidArgument(path, ": model_hash is missing or no hexadecimal number",
                                 kMakeAnew);
  if (found != expected.model_hash) {
    return base::FailedPrecondition(path, ": made for another model: model_hash is ", found,
                                    ", the model's is ", expected.model_hash,
                                    "; give another side-car, or delete it and make it anew");
  }
  const std::pair<const char*, int> sizes[] = {{"hidden_size", expected.hidden_size},
                                               {"intermediate_size", expected.intermediate_size},
                                               {"num_hidden_layers", expected.num_hidden_layers}};
  for (const auto& [key, size] : sizes) {
    const Json* value = header.Find(key);
    if (value != nullptr && value->is_int() && value->as_int() == size) continue;
    return base::FailedPrecondition(path, ": ", key, " is ",
                                    value == nullptr ? "missing" : value->Dump(),
                                    ", the model's is ", size, kMakeAnew);
  }
  return OkStatus();
}

}  // namespace

Result<SideCar> ReadSideCar(const std::string& path, const SideCarIdentity& expected) {
  ASSIGN_OR_RETURN(const auto file, base::OpenFile(path));
  ASSIGN_OR_RETURN(const SideCarPrefix prefix, ReadPrefix(*file));
  RETURN_IF_ERROR(VerifyChecksum(*file));
  constexpr std::uint32_t kHeaderBytesMax = 16 << 20, kHeaderValuesMax = 1 << 20;
  if (prefix.header_bytes > kHeaderBytesMax)
    return base::DataLoss(path, ": the header has ", prefix.header_bytes, " bytes; at most ",
                          kHeaderBytesMax, " are read");
  std::string text(prefix.header_bytes, '\0');
  RETURN_IF_ERROR(file->ReadAt(sizeof(prefix), std::as_writable_bytes(std::span(text))));
  auto parsed = base::ParseJsonOf(text, kHeaderValuesMax);
  if (!parsed.ok()) return parsed.status().Annotate(path + ": header");
  const Json& header = *parsed;
  RETURN_IF_ERROR(CheckIdentity(path, header, expected));
  SideCar s = EmptySideCar(expected);
  Status status;
  HeaderFields fields(header, path + ": ", kMakeAnew, status);
  s.profiled_tokens = fields.Int("profiled_tokens", 0, INT64_MAX);
  if (const Json* points = fields.Optional("input_points"); points != nullptr && points->is_array())
    for (const Json& point : points->as_array())
      s.input_points.push_back(
          ReadPoint(HeaderFields(point, path + ": input_points: ", kMakeAnew, status)));
  const Json::Array& layers = fields.List("layers", s.layers.size());
  RETURN_IF_ERROR(status);
  const ArrayArea area{.file = *file,
                       .begin = SideCarAligned(sizeof(prefix) + std::uint64_t{prefix.header_bytes}),
                       .end = file->size() - sizeof(SideCarChecksum)};
  for (std::size_t i = 0; i < s.layers.size() && status.ok(); ++i) {
    s.layers[i] = ReadLayer(layers[i], StrCat(path, ": layer ", i, ": "), s, area, status);
  }
  RETURN_IF_ERROR(status);
  RETURN_IF_ERROR(ValidateSideCar(path, s));
  return s;
}

}  // namespace thermocline::predictor
