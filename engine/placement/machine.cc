#include "engine/placement/machine.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace thermocline::placement {
namespace {

constexpr double kSizeMax = 9e18;  // bytes that 63 bits hold

struct RateField {
  const char* name;
  double Processor::*member;
  bool is_rate;                // must be above 0, not only nonnegative
  bool may_be_absent = false;  // if absent, it is 0
};
constexpr RateField kRates[] = {
    {"dense_bytes_per_s", &Processor::dense_bytes_per_s, true},
    {"rows_bytes_per_s", &Processor::rows_bytes_per_s, true},
    {"predictor_bytes_per_s", &Processor::predictor_bytes_per_s, true},
    {"decide_bytes_per_s", &Processor::decide_bytes_per_s, false, true},
    {"whole_bytes_per_s", &Processor::whole_bytes_per_s, false, true},
    {"row_s", &Processor::row_s, false},
    {"layer_s", &Processor::layer_s, false},
};

Status Wrong(const std::string& field, std::string_view found) {
  return base::InvalidArgument("machine: ", field, " is ", found);
}

// A finite nonnegative number; `absent` is its default if the field may be omitted.
Status ReadNumber(const Json& json, const std::string& where, const char* name,
                  std::optional<double> absent, double& out) {
  const std::string field = where + name;
  const Json* value = json.Find(name);
  if (value == nullptr && absent.has_value()) {
    out = *absent;
    return OkStatus();
  }
  if (value == nullptr) return Wrong(field, "missing");
  if (!value->is_number()) return Wrong(field, StrCat("a ", value->type_name(), ", not a number"));
  out = value->as_double();
  if (!std::isfinite(out) || out < 0)
    return Wrong(field, StrCat(out, "; it must be finite and not below 0"));
  return OkStatus();
}

Status ReadProcessor(const Json& json, const std::string& where, Processor& out) {
  if (!json.is_object())
    return Wrong(where, StrCat("a ", json.type_name(), ", expected an object"));
  for (const RateField& field : kRates) {
    RETURN_IF_ERROR(ReadNumber(json, where + ".", field.name,
                               field.may_be_absent ? std::optional(0.0) : std::nullopt,
                               out.*field.member));
    if (field.is_rate && out.*field.member <= 0)
      return Wrong(StrCat(where, ".", field.name), "0; it must be above 0");
  }
  return OkStatus();
}

Status ReadSize(const Json& json, const char* name, std::int64_t& out) {
  double value = 0;
  RETURN_IF_ERROR(ReadNumber(json, "", name, 0.0, value));
  if (value > kSizeMax) return Wrong(name, StrCat(value, ", more bytes than can be counted"));
  out = static_cast<std::int64_t>(value);
  return OkStatus();
}

Status ReadText(const Json& json, const char* name, std::string& out) {
  const Json* value = json.Find(name);
  if (value == nullptr) return OkStatus();
  if (!value->is_string()) return Wrong(name, StrCat("a ", value->type_name(), ", not a string"));
  out = value->as_string();
  return OkStatus();
}

Status ReadFlag(const Json& json, const char* name, bool& out) {
  const Json* value = json.Find(name);
  if (value == nullptr) return OkStatus();
  if (!value->is_bool()) return Wrong(name, "neither true nor false");
  out = value->as_bool();
  return OkStatus();
}

Json ProcessorJson(const Processor& processor) {
  Json out{Json::Object()};
  for (const RateField& field : kRates) out.Set(field.name, processor.*field.member);
  return out;
}

// Rejects unknown fields, because a misspelt field would silently count as 0.
Status RefuseStrangers(const Json& json) {
  static constexpr std::array kFields = {"name",
                                         "key",
                                         "notes",
                                         "cold",
                                         "hot",
                                         "hot_bytes",
                                         "memory_bytes",
                                         "unified",
                                         "hot_homes",
                                         "sync_s",
                                         "link_bytes_per_s",
                                         "flash_reads_per_s",
                                         "flash_bytes_per_s"};
  for (const auto& [key, value] : json.as_object()) {
    if (std::find(kFields.begin(), kFields.end(), key) == kFields.end())
      return base::InvalidArgument("machine: there is no field '", key, "'");
  }
  return OkStatus();
}

}  // namespace

double Machine::FlashReadTime(double bytes) const {
  return std::max(1 / flash_reads_per_s, bytes / flash_bytes_per_s);
}

Json Machine::ToJson() const {
  Json out{Json::Object{{"name", name}, {"key", key}, {"cold", ProcessorJson(cold)}}};
  if (hot.has_value()) out.Set("hot", ProcessorJson(*hot));
  out.Set("hot_bytes", hot_bytes);
  out.Set("memory_bytes", memory_bytes);
  out.Set("unified", unified);
  out.Set("hot_homes", hot_homes);
  out.Set("sync_s", sync_s);
  out.Set("link_bytes_per_s", link_bytes_per_s);
  out.Set("flash_reads_per_s", flash_reads_per_s);
  out.Set("flash_bytes_per_s", flash_bytes_per_s);
  return out;
}

Result<Machine> Machine::FromJson(const Json& json) {
  if (!json.is_object())
    return base::InvalidArgument("machine: a ", json.type_name(), ", expected an object");
  RETURN_IF_ERROR(RefuseStrangers(json));
  Machine out;
  RETURN_IF_ERROR(ReadText(json, "name", out.name));
  RETURN_IF_ERROR(ReadText(json, "key", out.key));
  const Json* cold = json.Find("cold");
  if (cold == nullptr) return Wrong("cold", "missing");
  RETURN_IF_ERROR(ReadProcessor(*cold, "cold", out.cold));
  if (const Json* hot = json.Find("hot"))
    RETURN_IF_ERROR(ReadProcessor(*hot, "hot", out.hot.emplace()));
  RETURN_IF_ERROR(ReadSize(json, "hot_bytes", out.hot_bytes));
  RETURN_IF_ERROR(ReadSize(json, "memory_bytes", out.memory_bytes));
  RETURN_IF_ERROR(ReadFlag(json, "unified", out.unified));
  RETURN_IF_ERROR(ReadFlag(json, "hot_homes", out.hot_homes));
  if (out.unified && !out.hot_homes) return Wrong("hot_homes", "false, though memory is unified");
  RETURN_IF_ERROR(ReadNumber(json, "", "sync_s", 0.0, out.sync_s));
  RETURN_IF_ERROR(ReadNumber(json, "", "link_bytes_per_s", 0.0, out.link_bytes_per_s));
  RETURN_IF_ERROR(ReadNumber(json, "", "flash_reads_per_s", 0.0, out.flash_reads_per_s));
  RETURN_IF_ERROR(ReadNumber(json, "", "flash_bytes_per_s", 0.0, out.flash_bytes_per_s));
  if ((out.flash_reads_per_s > 0) != (out.flash_bytes_per_s > 0))
    return base::InvalidArgument(
        "machine: flash_reads_per_s and flash_bytes_per_s are both above 0, or both 0: no flash");
  if (out.hot.has_value() && !out.unified && out.link_bytes_per_s <= 0)
    return Wrong("link_bytes_per_s", "0, though the machine has a hot side");
  return out;
}

}  // namespace thermocline::placement
