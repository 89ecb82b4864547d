#include "engine/model/sampling_metadata.h"

#include <cmath>
#include <optional>

namespace thermocline::model {
namespace {

constexpr int kTopKMax = 1'000'000;

// One value: its names in both formats, where it goes, and what it may be.
struct Key {
  const char *gguf, *hugging_face;
  std::optional<double> SamplingDefaults::*target;
  double least, most;
};
constexpr Key kKeys[] = {
    {"general.sampling.temp", "temperature", &SamplingDefaults::temperature, 0, 2},
    {"general.sampling.top_p", "top_p", &SamplingDefaults::top_p, 0, 1},
    {"general.sampling.min_p", "min_p", &SamplingDefaults::min_p, 0, 1},
    {"general.sampling.penalty_repeat", "repetition_penalty", &SamplingDefaults::repetition_penalty,
     0.01, 100},
};

Status Read(const Json& json, const char* key, double least, double most,
            std::optional<double>& out) {
  const Json* value = json.Find(key);
  if (value == nullptr || value->is_null()) return OkStatus();
  if (!value->is_number() || !(value->as_double() >= least && value->as_double() <= most)) {
    return base::InvalidArgument("key '", key, "' is ", value->Dump(), ", not a number from ",
                                 least, " to ", most);
  }
  out = std::round(value->as_double() * 1e6) / 1e6;  // GGUF's f32 holds 0.7 as 0.69999999
  return OkStatus();
}

// 0 and -1 both mean all tokens.
Status ReadTopK(const Json& json, const char* key, std::optional<int>& out) {
  std::optional<double> top_k;
  RETURN_IF_ERROR(Read(json, key, -1, kTopKMax, top_k));
  if (top_k.has_value()) out = *top_k < 0 ? 0 : static_cast<int>(*top_k);
  return OkStatus();
}

}  // namespace

Result<SamplingDefaults> SamplingFromMetadata(const Json& metadata) {
  SamplingDefaults sampling;
  for (const Key& key : kKeys)
    RETURN_IF_ERROR(Read(metadata, key.gguf, key.least, key.most, sampling.*key.target));
  RETURN_IF_ERROR(ReadTopK(metadata, kTopKKey, sampling.top_k));
  return sampling;
}

Result<SamplingDefaults> SamplingFromGenerationConfig(const Json& generation_config) {
  SamplingDefaults sampling;
  for (const Key& key : kKeys) {
    RETURN_IF_ERROR(
        Read(generation_config, key.hugging_face, key.least, key.most, sampling.*key.target));
  }
  RETURN_IF_ERROR(ReadTopK(generation_config, "top_k", sampling.top_k));
  return sampling;
}

std::vector<std::pair<std::string, double>> SamplingMetadata(const SamplingDefaults& sampling) {
  std::vector<std::pair<std::string, double>> out;
  for (const Key& key : kKeys) {
    if ((sampling.*key.target).has_value()) out.emplace_back(key.gguf, *(sampling.*key.target));
  }
  if (sampling.top_k.has_value()) out.emplace_back(kTopKKey, *sampling.top_k);
  return out;
}

}  // namespace thermocline::model
