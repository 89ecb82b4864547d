#include "engine/model/sampling_metadata.h"

#include <algorithm>
#include <cmath>

#include "engine/api/sampling_table.h"

namespace thermocline::model {
namespace {

Status Read(const Json& json, const char* key, const SamplingField& field, SamplingDefaults& out) {
  const Json* value = json.Find(key);
  if (value == nullptr || value->is_null()) return OkStatus();
  // Both 0 and -1 mean all tokens.
  const double least = field.preferred_whole != nullptr ? -1 : field.range.min;
  if (!value->is_number() ||
      !(value->as_double() >= least && value->as_double() <= field.range.max)) {
    return base::InvalidArgument("key '", key, "' is ", value->Dump(), ", not a number from ",
                                 least, " to ", field.range.max);
  }
  const double rounded = std::round(value->as_double() * 1e6) / 1e6;  // f32 holds 0.7 as 0.69999999
  field.Prefer(out, std::max(field.range.min, rounded));
  return OkStatus();
}

}  // namespace

Result<SamplingDefaults> SamplingFromMetadata(const Json& metadata) {
  SamplingDefaults sampling;
  for (const SamplingField& field : SamplingFields())
    if (field.has_preference()) RETURN_IF_ERROR(Read(metadata, field.gguf, field, sampling));
  return sampling;
}

Result<SamplingDefaults> SamplingFromGenerationConfig(const Json& generation_config) {
  SamplingDefaults sampling;
  for (const SamplingField& field : SamplingFields())
    if (field.has_preference())
      RETURN_IF_ERROR(Read(generation_config, field.name, field, sampling));
  return sampling;
}

Json::Object SamplingMetadata(const SamplingDefaults& sampling) {
  Json::Object out;
  for (const SamplingField& field : SamplingFields()) {
    const auto value = field.Preferred(sampling);
    if (!value.has_value()) continue;
    const bool whole = field.preferred_whole != nullptr;
    out.emplace_back(field.gguf, whole ? Json(static_cast<std::int64_t>(*value)) : Json(*value));
  }
  return out;
}

}  // namespace thermocline::model
