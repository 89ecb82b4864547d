#include "server/protocol/sampling_fields.h"

#include <cstring>
#include <limits>

#include "engine/base/random.h"
#include "engine/base/strings.h"
#include "server/core/request_limits.h"

namespace thermocline::protocol {
namespace {

void ReadNumber(Fields& fields, const char* name, const SamplingField& field,
                SamplingParams& sampling) {
  // Some clients write -1 for all tokens.
  if (field.whole == &SamplingParams::top_k && IsMinusOne(fields, name)) {
    sampling.top_k = 0;
  } else if (field.number != nullptr) {
    sampling.*field.number =
        fields.Double(name, sampling.*field.number, field.range.min, field.range.max);
  } else {
    sampling.*field.whole = static_cast<int>(
        fields.Int(name, sampling.*field.whole, static_cast<std::int64_t>(field.range.min),
                   static_cast<std::int64_t>(field.range.max)));
  }
}

void ReadNumbers(Fields& fields, SamplingNames names, SamplingParams& sampling) {
  for (const SamplingField& field : SamplingFields()) {
    if (names == SamplingNames::kOpenAi) ReadNumber(fields, field.name, field, sampling);
    if (names == SamplingNames::kLlama || std::strcmp(field.name, field.llama) != 0)
      ReadNumber(fields, field.llama, field, sampling);
  }
}

// llama-server and Ollama also draw a random seed for -1, in 32 or 64 bits.
std::uint64_t ReadSeed(Fields& fields, SamplingNames names) {
  if (fields.Find("seed") == nullptr) return base::RandomBits64();
  const std::uint64_t seed = fields.Bits64("seed", 0);
  const bool drawn = seed == std::numeric_limits<std::uint64_t>::max() || seed == UINT32_MAX;
  return drawn && names == SamplingNames::kLlama ? base::RandomBits64() : seed;
}

// Reads {"token id": bias} or llama-server's [[token id, bias]]; false means never.
void ReadLogitBias(Fields& fields, SamplingParams& sampling) {
  const Range bounds = server::kLogitBiasRange;
  const Json* bias = fields.Find("logit_bias");
  if (bias == nullptr) return;
  const auto add = [&](std::optional<std::int64_t> id, const Json& value) {
    const bool never = value.is_bool() && !value.as_bool();
    const bool good = id.has_value() && *id >= 0 && *id <= INT32_MAX &&
                      (never || (value.is_number() && value.as_double() >= bounds.min &&
                                 value.as_double() <= bounds.max));
    if (!good || sampling.logit_bias.size() == server::kLogitBiasMax)
      return fields.Fail("logit_bias", StrCat("'logit_bias' must map at most ",
                                              server::kLogitBiasMax, " token ids to numbers in [",
                                              bounds.min, ", ", bounds.max, "], or to false"));
    const double number = never ? bounds.min : value.as_double();
    sampling.logit_bias.emplace_back(static_cast<int>(*id), static_cast<float>(number));
  };
  if (bias->is_object()) {
    for (const auto& [name, value] : bias->as_object())
      add(base::ParseNumber<std::int64_t>(name), value);
    return;
  }
  if (!bias->is_array()) return add(std::nullopt, Json());
  for (const Json& pair : bias->as_array()) {
    const bool whole =
        pair.is_array() && pair.as_array().size() == 2 && pair.as_array()[0].is_int();
    add(whole ? std::optional(pair.as_array()[0].as_int()) : std::nullopt,
        whole ? pair.as_array()[1] : Json());
  }
}

// Penalties cover all tokens here, so another window is rejected if a penalty is set.
void ReadPenaltyWindow(Fields& fields, const SamplingParams& sampling) {
  const auto last_n = fields.Int("repeat_last_n", -1, -1, INT32_MAX);
  const bool penalised = sampling.repetition_penalty != 1 || sampling.presence_penalty != 0 ||
                         sampling.frequency_penalty != 0;
  if (last_n != -1 && penalised)
    fields.FailUnsupported("repeat_last_n", "penalties look at all tokens: give -1");
}

}  // namespace

bool IsMinusOne(const Fields& fields, std::string_view name) {
  const Json* value = fields.Find(name);
  return value != nullptr && value->is_number() && value->as_double() == -1;
}

void ReadSampling(Fields& fields, SamplingNames names, SamplingParams& sampling) {
  ReadNumbers(fields, names, sampling);
  sampling.seed = ReadSeed(fields, names);
  ReadLogitBias(fields, sampling);
  ReadPenaltyWindow(fields, sampling);
}

}  // namespace thermocline::protocol
