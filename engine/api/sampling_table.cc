#include "engine/api/sampling_table.h"

#include <array>

namespace thermocline {
namespace {

using P = SamplingParams;
using D = SamplingDefaults;

constexpr double kMany = 1e9;
constexpr Range kProbability = {0, 1}, kPenalty = {-2, 2};

constexpr std::array kFields = {
    SamplingField{.name = "temperature",
                  .llama = "temperature",
                  .gguf = "general.sampling.temp",
                  .grpc = "sampling.temperature",
                  .range = {0, 100},
                  .number = &P::temperature,
                  .preferred_number = &D::temperature,
                  .title = "Temperature",
                  .step = 0.05,
                  .help = "0 takes the most probable token"},
    SamplingField{.name = "top_k",
                  .llama = "top_k",
                  .gguf = "general.sampling.top_k",
                  .grpc = "sampling.top_k",
                  .range = {0, kMany},
                  .whole = &P::top_k,
                  .preferred_whole = &D::top_k,
                  .title = "Top k",
                  .step = 1,
                  .help = "Sample from the k most probable tokens; 0 = all"},
    SamplingField{.name = "top_p",
                  .llama = "top_p",
                  .gguf = "general.sampling.top_p",
                  .grpc = "sampling.top_p",
                  .range = kProbability,
                  .number = &P::top_p,
                  .preferred_number = &D::top_p,
                  .title = "Top p",
                  .step = 0.01,
                  .help = "Sample from the smallest set of tokens with this probability"},
    SamplingField{.name = "min_p",
                  .llama = "min_p",
                  .gguf = "general.sampling.min_p",
                  .grpc = "sampling.min_p",
                  .range = kProbability,
                  .number = &P::min_p,
                  .preferred_number = &D::min_p,
                  .title = "Min p",
                  .step = 0.01,
                  .help = "Leave out tokens below this share of the highest probability"},
    SamplingField{
        .name = "typical_p",
        .llama = "typical_p",
        .gguf = nullptr,
        .grpc = "sampling.typical_p",
        .range = kProbability,
        .number = &P::typical_p,
        .help = "Sample from the set nearest to the expected surprise, with this probability"},
    SamplingField{.name = "repetition_penalty",
                  .llama = "repeat_penalty",
                  .gguf = "general.sampling.penalty_repeat",
                  .grpc = "sampling.repetition_penalty",
                  .range = {0.01, 100},
                  .number = &P::repetition_penalty,
                  .preferred_number = &D::repetition_penalty,
                  .help = "Above 1 makes seen tokens less likely, the prompt's too"},
    SamplingField{.name = "presence_penalty",
                  .llama = "presence_penalty",
                  .gguf = nullptr,
                  .grpc = "sampling.presence_penalty",
                  .range = kPenalty,
                  .number = &P::presence_penalty,
                  .help = "Subtracted once from the logits of generated tokens"},
    SamplingField{.name = "frequency_penalty",
                  .llama = "frequency_penalty",
                  .gguf = nullptr,
                  .grpc = "sampling.frequency_penalty",
                  .range = kPenalty,
                  .number = &P::frequency_penalty,
                  .help = "Subtracted from a token's logit for each time it was generated"},
    SamplingField{
        .name = "dry_multiplier",
        .llama = "dry_multiplier",
        .gguf = nullptr,
        .grpc = "sampling.dry.multiplier",
        .range = {0, 100},
        .number = &P::dry_multiplier,
        .help = "Strength of the DRY penalty on tokens that go on with a repetition; 0 = off"},
    SamplingField{.name = "dry_base",
                  .llama = "dry_base",
                  .gguf = nullptr,
                  .grpc = "sampling.dry.base",
                  .range = {1, 100},
                  .number = &P::dry_base,
                  .help = "Growth of the DRY penalty with each repeated token"},
    SamplingField{.name = "dry_allowed_length",
                  .llama = "dry_allowed_length",
                  .gguf = nullptr,
                  .grpc = "sampling.dry.allowed_length",
                  .range = {1, kMany},
                  .whole = &P::dry_allowed_length,
                  .help = "Repeated tokens from which the DRY penalty begins"},
    SamplingField{.name = "dry_penalty_last_n",
                  .llama = "dry_penalty_last_n",
                  .gguf = nullptr,
                  .grpc = "sampling.dry.penalty_last_n",
                  .range = {-1, kMany},
                  .whole = &P::dry_penalty_last_n,
                  .help = "Tokens that DRY looks back at; -1 = all, 0 = none"},
    SamplingField{.name = "min_tokens",
                  .llama = "min_tokens",
                  .gguf = nullptr,
                  .grpc = "stop.min_tokens",
                  .range = {0, kMany},
                  .whole = &P::min_tokens,
                  .help = "Tokens before which the model's end and stop tokens do not come"},
};

}  // namespace

std::span<const SamplingField> SamplingFields() { return kFields; }

std::optional<double> SamplingField::Preferred(const SamplingDefaults& defaults) const {
  if (preferred_number != nullptr) return defaults.*preferred_number;
  if (preferred_whole != nullptr) return defaults.*preferred_whole;
  return std::nullopt;
}

void SamplingField::Prefer(SamplingDefaults& defaults, std::optional<double> value) const {
  if (preferred_number != nullptr) {
    defaults.*preferred_number = value;
  } else {
    std::optional<int>& target = defaults.*preferred_whole;
    target = value.has_value() ? std::optional(static_cast<int>(*value)) : std::nullopt;
  }
}

Status ValidateSampling(const SamplingParams& params) {
  for (const SamplingField& field : SamplingFields()) {
    const double value = field.Get(params);
    if (value >= field.range.min && value <= field.range.max) continue;
    return base::InvalidArgument(field.name, " is ", value, "; it must lie in [", field.range.min,
                                 ", ", field.range.max, "]")
        .WithField(field.name);
  }
  return OkStatus();
}

}  // namespace thermocline
