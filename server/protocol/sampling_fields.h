// Reads the sampling fields of a request, for every JSON API.
#pragma once

#include "engine/api/sampling_params.h"
#include "server/protocol/fields.h"

namespace thermocline::protocol {

// kOpenAi: OpenAI's names, and llama-server's besides; kLlama: only the latter.
enum class SamplingNames { kOpenAi, kLlama };

// True if the field is present and -1.
bool IsMinusOne(const Fields& fields, std::string_view name);

// Reads every number of SamplingFields, the seed, "logit_bias" and "repeat_last_n". `sampling`
// holds the defaults; without a seed, one is drawn. Fields that are malformed or out of range fail
// `fields`.
void ReadSampling(Fields& fields, SamplingNames names, SamplingParams& sampling);

}  // namespace thermocline::protocol
