#include "server/protocol/common_request.h"

#include "server/protocol/adapter_fields.h"
#include "server/protocol/sampling_fields.h"
#include "server/protocol/structured_output.h"

namespace thermocline::protocol {
namespace {

// The request's token limit, under any of its names; nullopt if it is missing or -1.
std::optional<int> ReadMaxTokens(Fields& fields, int min) {
  std::int64_t given = -1;
  for (const char* name : {"max_tokens", "max_completion_tokens", "n_predict"}) {
    if (IsMinusOne(fields, name)) continue;
    const auto limit = fields.Int(name, -1, min, INT32_MAX);
    if (limit >= 0 && given >= 0 && limit != given)
      fields.Fail("max_tokens",
                  StrCat("'", name, "' and another limit of tokens differ; give one"));
    given = limit >= 0 ? limit : given;
  }
  return given >= 0 ? std::optional(static_cast<int>(given)) : std::nullopt;
}

// Reads {"speculation": "sync", "draft_tokens": 4}.
void ReadSpeculation(Fields& inner, Request& out) {
  if (const std::string name = inner.String("speculation", ""); !name.empty()) {
    const auto mode = ParseSpecMode(name);
    if (mode.ok()) {
      out.spec_mode = *mode;
    } else {
      inner.Fail("speculation", StrCat("'speculation' ", mode.status().message()));
    }
  }
  out.spec_tokens = inner.Int32("draft_tokens", -1, 0, kDraftTokensMax);
}

// Reads {"ffn_mode": "sign"}, our extensions of OpenAI's API. Unknown keys are rejected: a misspelt
// one would have no effect. The engine checks the mode.
void ReadExtension(Fields& fields, CommonRequest& common) {
  Request& out = common.generation.request;
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
  common.generation.timeout_s = inner.Double("timeout_s", 0, 0, server::kTimeoutMax);
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
  out.generation.request.progress = fields.Bool("return_progress", false) && out.stream;
  const Json* options = fields.Find("stream_options");
  if (options == nullptr) return;
  if (!options->is_object()) {
    fields.Fail("stream_options", "'stream_options' must be an object");
    return;
  }
  Fields inner(*options);
  out.include_usage = inner.Bool("include_usage", false);
  // Padding against eavesdroppers on an encrypted connection.
  (void)inner.Find("include_obfuscation");
  (void)inner.Find("continuous_usage_stats");
  inner.CheckUnknown(false);
  fields.Adopt("stream_options", inner);
}

}  // namespace

void FinishFields(Fields& fields, bool strict, server::GenerationRequest& generation) {
  fields.CheckUnknown(strict);
  generation.ignored_fields = fields.ignored();
}

void ReadCommon(Fields& fields, const RequestDefaults& defaults, int max_tokens_min,
                CommonRequest& out) {
  Request& request = out.generation.request;
  out.generation.model = fields.String("model", "");
  out.generation.choices = fields.Int32("n", 1, 1, kChoicesPerPromptMax);
  request.sampling = defaults.sampling;
  ReadSampling(fields, SamplingNames::kOpenAi, request.sampling);
  const std::optional<int> max_tokens = ReadMaxTokens(fields, max_tokens_min);
  request.max_tokens = max_tokens.value_or(defaults.max_tokens);
  if (!max_tokens.has_value()) out.generation.default_max_tokens = defaults.max_tokens;
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
  request.priority = fields.Int32("priority", 0, kPriorityMin, kPriorityMax);
  ReadStreamOptions(fields, out);
  ReadExtension(fields, out);
  ReadAdapters(fields, out.generation);
  out.generation.grammar = ReadStructuredOutput(fields);
}

}  // namespace thermocline::protocol
