#include "server/openai/common_request.h"

#include <random>

#include "server/openai/structured_output.h"

namespace thermocline::openai {
namespace {

using server::Range;

struct DoubleField {
  const char* name;
  Range range;
  double SamplingParams::*target;
};
constexpr DoubleField kDoubles[] = {
    {"temperature", server::kTemperatureRange, &SamplingParams::temperature},
    {"top_p", server::kProbabilityRange, &SamplingParams::top_p},
    {"min_p", server::kProbabilityRange, &SamplingParams::min_p},
    {"typical_p", server::kProbabilityRange, &SamplingParams::typical_p},
    {"repetition_penalty", server::kRepetitionPenaltyRange, &SamplingParams::repetition_penalty},
    {"presence_penalty", server::kPenaltyRange, &SamplingParams::presence_penalty},
    {"frequency_penalty", server::kPenaltyRange, &SamplingParams::frequency_penalty},
    {"dry_multiplier", server::kDryMultiplierRange, &SamplingParams::dry_multiplier},
    {"dry_base", server::kDryBaseRange, &SamplingParams::dry_base},
};

struct IntField {
  const char* name;
  Range range;
  int SamplingParams::*target;
};
constexpr IntField kInts[] = {
    {"top_k", server::kTopKRange, &SamplingParams::top_k},
    {"min_tokens", server::kMinTokensRange, &SamplingParams::min_tokens},
    {"dry_allowed_length", server::kDryAllowedLengthRange, &SamplingParams::dry_allowed_length},
    {"dry_penalty_last_n", server::kDryPenaltyLastNRange, &SamplingParams::dry_penalty_last_n},
};

bool IsMinusOne(const Json* value) {
  return value != nullptr && value->is_number() && value->as_double() == -1;
}

SamplingParams ReadSampling(Fields& fields, const SamplingParams& defaults) {
  SamplingParams s = defaults;
  for (const DoubleField& f : kDoubles)
    s.*f.target = fields.Double(f.name, defaults.*f.target, f.range.min, f.range.max);
  // llama-server's name of the same penalty.
  s.repetition_penalty =
      fields.Double("repeat_penalty", s.repetition_penalty, server::kRepetitionPenaltyRange.min,
                    server::kRepetitionPenaltyRange.max);
  ReadPenaltyWindow(fields, s);
  for (const IntField& f : kInts) {
    if (f.target == &SamplingParams::top_k && IsMinusOne(fields.Find(f.name))) {
      s.top_k = 0;  // Clients write -1 for all tokens, too.
      continue;
    }
    s.*f.target = static_cast<int>(fields.Int(
        f.name, defaults.*f.target, static_cast<int>(f.range.min), static_cast<int>(f.range.max)));
  }
  if (fields.Find("seed") != nullptr) {
    s.seed = fields.Bits64("seed", 0);
  } else {
    std::random_device device;
    s.seed = (static_cast<std::uint64_t>(device()) << 32) | device();
  }
  ReadLogitBias(fields, s);
  return s;
}

// The limit that the request gives under one of its names; nothing if it gives none, or -1.
std::optional<int> ReadMaxTokens(Fields& fields, int min) {
  std::int64_t given = -1;
  for (const char* name : {"max_tokens", "max_completion_tokens", "n_predict"}) {
    if (IsMinusOne(fields.Find(name))) continue;
    const auto limit = fields.Int(name, -1, min, INT32_MAX);
    if (limit >= 0 && given >= 0 && limit != given)
      fields.Fail("max_tokens",
                  StrCat("'", name, "' and another limit of tokens differ; give one"));
    given = limit >= 0 ? limit : given;
  }
  return given >= 0 ? std::optional(static_cast<int>(given)) : std::nullopt;
}

// {"speculation": "sync", "draft_tokens": 4}
void ReadSpeculation(Fields& inner, Request& out) {
  out.spec_mode = inner.String("speculation", "");
  bool known = out.spec_mode.empty();
  for (const SpecMode mode :
       {SpecMode::kOff, SpecMode::kSync, SpecMode::kBranch, SpecMode::kExhaustive, SpecMode::kAuto})
    known = known || out.spec_mode == SpecModeName(mode);
  if (!known) {
    inner.Fail("speculation",
               StrCat("'speculation' must be off, sync, branch, exhaustive or auto, not '",
                      out.spec_mode.substr(0, server::kSpecModeBytesMax), "'"));
  }
  out.spec_tokens = static_cast<int>(inner.Int("draft_tokens", -1, 0, kDraftTokensMax));
}

// {"ffn_mode": "sign"}: what OpenAI's API has no field for. Unknown keys are refused: a misspelt
// one would silently change nothing. The engine knows the modes.
void ReadExtension(Fields& fields, CommonRequest& common) {
  Request& out = common.asked.request;
  const Json* extension = fields.Find("x_thermocline");
  if (extension == nullptr) return;
  if (!extension->is_object()) {
    fields.Fail("x_thermocline",
                StrCat("'x_thermocline' must be an object, not a ", extension->type_name()));
    return;
  }
  for (const auto& [key, value] : extension->as_object()) {
    if (key == "ffn_mode" || key == "kl_max" || key == "timeout_s" || key == "speculation" ||
        key == "draft_tokens")
      continue;
    fields.Fail("x_thermocline." + key,
                StrCat("'x_thermocline' has no field '", key,
                       "'; it has 'ffn_mode', 'kl_max', 'timeout_s', 'speculation' and "
                       "'draft_tokens'"));
  }
  Fields inner(*extension);
  out.ffn_mode = inner.String("ffn_mode", "");
  out.kl_max = inner.Double("kl_max", -1, 0, kKlMaxMax);
  common.asked.timeout_s = inner.Double("timeout_s", 0, 0, server::kTimeoutMax);
  ReadSpeculation(inner, out);
  if (!inner.ok()) fields.Fail("x_thermocline." + inner.status().field(), inner.status().message());
  if (out.ffn_mode.size() > server::kFfnModeBytesMax) {
    fields.Fail("x_thermocline.ffn_mode",
                StrCat("'ffn_mode' has ", out.ffn_mode.size(), " bytes; at most ",
                       server::kFfnModeBytesMax, " are allowed"));
  }
}

void ReadStreamOptions(Fields& fields, CommonRequest& out) {
  out.stream = fields.Bool("stream", false);
  out.asked.request.progress = fields.Bool("return_progress", false) && out.stream;
  const Json* options = fields.Find("stream_options");
  if (options == nullptr) return;
  if (!options->is_object()) {
    fields.Fail("stream_options", "'stream_options' must be an object");
    return;
  }
  Fields inner(*options);
  out.include_usage = inner.Bool("include_usage", false);
  (void)inner.Find("include_obfuscation");  // padding against observers of an encrypted line
  (void)inner.Find("continuous_usage_stats");
  inner.CheckUnknown(false);
  fields.Adopt("stream_options", inner);
}

}  // namespace

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

void ReadPenaltyWindow(Fields& fields, const SamplingParams& sampling) {
  const auto last_n = fields.Int("repeat_last_n", -1, -1, INT32_MAX);
  const bool penalised = sampling.repetition_penalty != 1 || sampling.presence_penalty != 0 ||
                         sampling.frequency_penalty != 0;
  if (last_n != -1 && penalised)
    fields.FailUnsupported("repeat_last_n", "penalties look at all tokens: give -1");
}

void FinishFields(Fields& fields, bool strict, server::Asked& asked) {
  fields.CheckUnknown(strict);
  asked.ignored_fields = fields.ignored();
}

void ReadCommon(Fields& fields, const RequestDefaults& defaults, int max_tokens_min,
                CommonRequest& out) {
  Request& request = out.asked.request;
  out.asked.model = fields.String("model", "");
  out.asked.choices = static_cast<int>(fields.Int("n", 1, 1, kChoicesPerPromptMax));
  request.sampling = ReadSampling(fields, defaults.sampling);
  const std::optional<int> max_tokens = ReadMaxTokens(fields, max_tokens_min);
  request.max_tokens = max_tokens.value_or(defaults.max_tokens);
  if (!max_tokens.has_value()) out.asked.default_max_tokens = defaults.max_tokens;
  request.prompt_only = max_tokens == 0;
  if (max_tokens.has_value() && request.sampling.min_tokens > *max_tokens)
    fields.Fail("min_tokens", StrCat("'min_tokens' is ", request.sampling.min_tokens,
                                     ", more than 'max_tokens', ", *max_tokens));
  request.stop = fields.Stops("stop");
  request.stop_tokens =
      fields.Ints("stop_token_ids", server::kStopTokensMax).value_or(std::vector<int>());
  request.ignore_eos = fields.Bool("ignore_eos", false);
  request.dry_breakers =
      fields.Strings("dry_sequence_breakers", server::kDryBreakersMax, server::kDryBreakerBytesMax);
  request.priority = static_cast<int>(fields.Int("priority", 0, kPriorityMin, kPriorityMax));
  ReadStreamOptions(fields, out);
  ReadExtension(fields, out);
  out.asked.grammar = ReadStructuredOutput(fields);
}

}  // namespace thermocline::openai
