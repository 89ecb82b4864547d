#include <algorithm>
#include <cctype>
#include <cmath>
#include <limits>

#include "engine/base/file.h"
#include "engine/base/hash.h"
#include "engine/base/json.h"
#include "engine/predictor/side_car.h"
#include "engine/predictor/side_car_format.h"
#include "kernels/sign_predict.h"

namespace thermocline::predictor {
namespace {

constexpr std::int64_t kRankMax = 1 << 20;
constexpr const char* kMakeAnew =
    "; delete it and make it anew with `thermocline profile`, `calibrate` or `train-predictor`";

Status Damaged(const base::File& file, std::string_view what) {
  return base::DataLoss(file.path(), ": ", what, kMakeAnew);
}

// The prefix, once its claims about sizes fit the file.
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

// The arrays of the file, behind the header.
struct ArrayArea {
  const base::File& file;
  std::uint64_t begin = 0, end = 0;  // bytes from the start of the file
};

// Looks members of one object up. The first failure stays in status(); what is read after it is
// zero.
class Fields {
 public:
  Fields(const Json& json, std::string where, Status& status)
      : json_(json), where_(std::move(where)), status_(status) {}

  const Json* Optional(const char* key) const { return json_.Find(key); }

  std::int64_t Int(const char* key, std::int64_t min, std::int64_t max) {
    const Json* value = json_.Find(key);
    if (value == nullptr || !value->is_int() || value->as_int() < min || value->as_int() > max) {
      Fail(key, StrCat(" is ", value == nullptr ? "missing" : value->Dump(),
                       ", expected an integer of ", min, " to ", max));
      return 0;
    }
    return value->as_int();
  }
  double Number(const char* key) {
    const Json* value = json_.Find(key);
    if (value == nullptr || !value->is_number()) {
      Fail(key, StrCat(" is ", value == nullptr ? "missing" : value->Dump(),
                       ", expected a finite number"));
      return 0;
    }
    return value->as_double();
  }
  float Float(const char* key) {
    const double value = Number(key);
    if (std::abs(value) <= std::numeric_limits<float>::max()) return static_cast<float>(value);
    Fail(key, StrCat(" is ", value, ", more than a float holds"));
    return 0;
  }
  bool Bool(const char* key) {
    const Json* value = json_.Find(key);
    if (value == nullptr || !value->is_bool()) {
      Fail(key, " is no boolean");
      return false;
    }
    return value->as_bool();
  }

  std::string Text(const char* key) {
    const Json* value = json_.Find(key);
    if (value != nullptr && value->is_string()) return value->as_string();
    Fail(key, " is no string");
    return "";
  }

  // `count` elements; allocates only what the file holds.
  template <typename T>
  std::vector<T> Array(const char* key, std::int64_t count, const ArrayArea& area) {
    const Json* value = json_.Find(key);
    if (value == nullptr || !value->is_object()) {
      Fail(key, " is no array of the file");
      return {};
    }
    Fields array(*value, StrCat(where_, key, "."), status_);
    const std::uint64_t bytes = static_cast<std::uint64_t>(count) * sizeof(T);
    const auto at = static_cast<std::uint64_t>(array.Int("at", 0, INT64_MAX));
    const std::int64_t found = array.Int("count", 0, INT64_MAX);
    if (!status_.ok()) return {};
    if (found != count) {
      Fail(key, StrCat(" has ", found, " elements, expected ", count));
      return {};
    }
    const std::uint64_t room = area.end - area.begin;
    if (at % kSideCarAlignment != 0 || at > room || bytes > room - at) {
      Fail(key, StrCat(" lies at ", at, " with ", bytes, " bytes, outside of the file's ", room,
                       " or at no multiple of ", kSideCarAlignment));
      return {};
    }
    std::vector<T> out(static_cast<std::size_t>(count));
    const Status read = area.file.ReadAt(area.begin + at, std::as_writable_bytes(std::span(out)));
    if (!read.ok()) status_ = read;
    return out;
  }

 private:
  void Fail(const char* key, std::string_view what) {
    if (status_.ok()) status_ = base::InvalidArgument(where_, key, what, kMakeAnew);
  }

  const Json& json_;
  std::string where_;  // "FILE: layer 3: low_rank."
  Status& status_;
};

SignCalibration ReadSign(Fields fields, std::int64_t d, std::int64_t f, const ArrayArea& area) {
  SignCalibration sign;
  sign.slices = static_cast<int>(fields.Int("slices", 1, kernels::kSignSlicesMax));
  sign.planes = static_cast<int>(fields.Int("planes", 1, 2));
  sign.recall = fields.Number("recall");
  sign.predicted_share = fields.Number("predicted_share");
  sign.active_share = fields.Number("active_share");
  sign.missed_mass = fields.Number("missed_mass");
  sign.columns = fields.Array<std::int32_t>("columns", fields.Int("num_columns", 0, d), area);
  sign.thresholds = fields.Array<std::int32_t>("thresholds", f, area);
  return sign;
}

LowRankPredictor ReadLowRank(Fields fields, std::int64_t d, std::int64_t f, const ArrayArea& area) {
  LowRankPredictor p;
  p.rank = static_cast<int>(fields.Int("rank", 1, kRankMax));
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

LayerSideCar ReadLayer(const Json& json, const std::string& where, const SideCar& s,
                       const ArrayArea& area, Status& status) {
  LayerSideCar layer;
  Fields fields(json, where, status);
  const std::int64_t d = s.hidden_size, f = s.intermediate_size;
  if (fields.Optional("activations") != nullptr)
    layer.activations = fields.Array<std::uint32_t>("activations", f, area);
  if (fields.Optional("down_norms") != nullptr)
    layer.down_norms = fields.Array<float>("down_norms", f, area);
  if (fields.Optional("alpha") != nullptr) layer.alpha = fields.Number("alpha");
  if (const Json* sign = fields.Optional("sign"))
    layer.sign = ReadSign(Fields(*sign, where + "sign.", status), d, f, area);
  if (fields.Optional("threshold") != nullptr) {
    layer.threshold = fields.Float("threshold");
    layer.threshold_kept_mass = fields.Number("threshold_kept_mass");
  }
  if (const Json* low_rank = fields.Optional("low_rank"))
    layer.low_rank = ReadLowRank(Fields(*low_rank, where + "low_rank.", status), d, f, area);
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
  std::string text(prefix.header_bytes, '\0');
  RETURN_IF_ERROR(file->ReadAt(sizeof(prefix), std::as_writable_bytes(std::span(text))));
  auto parsed = base::ParseJson(text);
  if (!parsed.ok()) return parsed.status().Annotate(path + ": header");
  const Json& header = *parsed;
  RETURN_IF_ERROR(CheckIdentity(path, header, expected));
  SideCar s = EmptySideCar(expected);
  Status status;
  s.profiled_tokens = Fields(header, path + ": ", status).Int("profiled_tokens", 0, INT64_MAX);
  const Json* layers = header.Find("layers");
  if (layers == nullptr || !layers->is_array() || layers->as_array().size() != s.layers.size()) {
    const std::size_t found =
        layers == nullptr || !layers->is_array() ? 0 : layers->as_array().size();
    return base::InvalidArgument(path, ": layers has ", found, " entries, expected ",
                                 s.layers.size(), kMakeAnew);
  }
  const ArrayArea area{.file = *file,
                       .begin = SideCarAligned(sizeof(prefix) + std::uint64_t{prefix.header_bytes}),
                       .end = file->size() - sizeof(SideCarChecksum)};
  for (std::size_t i = 0; i < s.layers.size() && status.ok(); ++i) {
    s.layers[i] =
        ReadLayer(layers->as_array()[i], StrCat(path, ": layer ", i, ": "), s, area, status);
  }
  RETURN_IF_ERROR(status);
  RETURN_IF_ERROR(ValidateSideCar(path, s));
  return s;
}

}  // namespace thermocline::predictor
