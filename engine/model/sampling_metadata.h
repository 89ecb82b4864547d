// The sampling parameters that a model's makers recommend, read from its files.
//
// GGUF: `general.sampling.temp`, `.top_k`, `.top_p`, `.min_p`, `.penalty_repeat`. Hugging Face:
// `generation_config.json`, independent of `do_sample`.
// Source: llama.cpp's keys; vLLM reads the same five from generation_config.json.
#pragma once

#include "engine/api/sampling_params.h"
#include "engine/base/json.h"

namespace thermocline::model {

// InvalidArgument names the key, its value and its range.
Result<SamplingDefaults> SamplingFromMetadata(const Json& metadata);
Result<SamplingDefaults> SamplingFromGenerationConfig(const Json& generation_config);

// Returns the same parameters as GGUF keys, integers and numbers.
Json::Object SamplingMetadata(const SamplingDefaults& sampling);

}  // namespace thermocline::model
