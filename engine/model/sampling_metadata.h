// The sampling that a model's makers recommend, as its files say it.
//
// GGUF: `general.sampling.temp`, `.top_k`, `.top_p`, `.min_p`, `.penalty_repeat`. Hugging Face:
// `generation_config.json`, whatever `do_sample` says.
// Source: llama.cpp's keys; vLLM takes the same five of generation_config.json.
#pragma once

#include "engine/api/sampling_params.h"
#include "engine/base/json.h"

namespace thermocline::model {

// InvalidArgument names the key, its value and its range.
Result<SamplingDefaults> SamplingFromMetadata(const Json& metadata);
Result<SamplingDefaults> SamplingFromGenerationConfig(const Json& generation_config);

// The keys of GGUF that say the same, integers and numbers.
Json::Object SamplingMetadata(const SamplingDefaults& sampling);

}  // namespace thermocline::model
