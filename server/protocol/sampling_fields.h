// The fields of a request that say how tokens are drawn, in every API of JSON.
#pragma once

#include "engine/api/sampling_params.h"
#include "server/protocol/fields.h"

namespace thermocline::protocol {

// OpenAI's names, beside which those of llama-server hold, or these alone.
enum class SamplingNames { kOpenAi, kLlama };

// True if the field is there and -1.
bool IsMinusOne(const Fields& fields, std::string_view name);

// Reads every number of SamplingFields, the seed, "logit_bias" and "repeat_last_n". `sampling` has
// the values that hold where the request is silent; without a seed it is drawn. What is malformed
// or out of range fails `fields`.
void ReadSampling(Fields& fields, SamplingNames names, SamplingParams& sampling);

}  // namespace thermocline::protocol
