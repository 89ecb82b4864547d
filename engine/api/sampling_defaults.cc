#include "engine/api/sampling_table.h"
#include "engine/base/strings.h"

namespace thermocline {

SamplingDefaults OrCommon(const SamplingDefaults& recommended) {
  return recommended.empty() ? kCommonSampling : recommended;
}

SamplingParams WithDefaults(SamplingParams params, const SamplingDefaults& defaults) {
  for (const SamplingField& field : SamplingFields())
    if (const auto value = field.Preferred(defaults)) field.Set(params, *value);
  return params;
}

SamplingDefaults Merge(const SamplingDefaults& first, const SamplingDefaults& second) {
  SamplingDefaults merged = second;
  for (const SamplingField& field : SamplingFields())
    if (const auto value = field.Preferred(first)) field.Prefer(merged, value);
  return merged;
}

std::string ToString(const SamplingDefaults& defaults) {
  std::string text;
  for (const SamplingField& field : SamplingFields()) {
    if (const auto value = field.Preferred(defaults))
      text += StrCat(text.empty() ? "" : ", ", field.name, " ", *value);
  }
  return text;
}

}  // namespace thermocline
