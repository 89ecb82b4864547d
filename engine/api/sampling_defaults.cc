#include "engine/api/sampling_params.h"
#include "engine/base/strings.h"

namespace thermocline {

SamplingDefaults OrCommon(const SamplingDefaults& recommended) {
  return recommended.empty() ? kCommonSampling : recommended;
}

SamplingParams WithDefaults(SamplingParams params, const SamplingDefaults& defaults) {
  params.temperature = defaults.temperature.value_or(params.temperature);
  params.top_k = defaults.top_k.value_or(params.top_k);
  params.top_p = defaults.top_p.value_or(params.top_p);
  params.min_p = defaults.min_p.value_or(params.min_p);
  params.repetition_penalty = defaults.repetition_penalty.value_or(params.repetition_penalty);
  return params;
}

SamplingDefaults Merge(const SamplingDefaults& first, const SamplingDefaults& second) {
  const auto either = [](const auto& a, const auto& b) { return a.has_value() ? a : b; };
  return {.temperature = either(first.temperature, second.temperature),
          .top_p = either(first.top_p, second.top_p),
          .min_p = either(first.min_p, second.min_p),
          .repetition_penalty = either(first.repetition_penalty, second.repetition_penalty),
          .top_k = either(first.top_k, second.top_k)};
}

std::string ToString(const SamplingDefaults& defaults) {
  std::string text;
  const auto add = [&](const char* name, const auto& value) {
    if (value.has_value()) text += StrCat(text.empty() ? "" : ", ", name, " ", *value);
  };
  add("temperature", defaults.temperature);
  add("top_k", defaults.top_k);
  add("top_p", defaults.top_p);
  add("min_p", defaults.min_p);
  add("repetition_penalty", defaults.repetition_penalty);
  return text;
}

}  // namespace thermocline
