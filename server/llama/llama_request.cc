#include "server/llama/llama_request.h"

#include <algorithm>

#include "server/core/request_limits.h"
#include "server/protocol/adapter_fields.h"
#include "server/protocol/sampling_fields.h"
#include "server/protocol/structured_output.h"

namespace thermocline::llama {
namespace {

using protocol::Fields;
constexpr std::size_t kOtherFilesMax = 1024, kResponseFieldsMax = 64, kFieldBytesMax = 256;

// Samplers that this server does not have; settings show them with the value that disables them.
struct Neutral {
  const char* name;
  double value;
};
constexpr Neutral kNeutral[] = {{"mirostat", 0},     {"dynatemp_range", 0}, {"xtc_probability", 0},
                                {"top_n_sigma", -1}, {"tfs_z", 1},          {"n_discard", 0}};

void ReadShared(Fields& fields, const protocol::RequestDefaults& defaults, LlamaRequest& out) {
  server::GenerationRequest& generation = out.generation;
  Request& request = generation.request;
  generation.model = fields.String("model", "");
  request.sampling = defaults.sampling;
  protocol::ReadSampling(fields, protocol::SamplingNames::kLlama, request.sampling);
  // -1: until the model ends; -2: until the context is full, which is treated alike.
  const auto older = fields.Int("max_tokens", -3, -2, INT32_MAX);
  const auto limit = fields.Int("n_predict", older, -2, INT32_MAX);
  const bool silent = limit == -3;
  request.max_tokens =
      silent ? defaults.max_tokens : static_cast<int>(std::max<std::int64_t>(0, limit));
  out.n_predict = request.max_tokens > 0 || limit == 0 ? request.max_tokens : -1;
  if (silent) generation.default_max_tokens = defaults.max_tokens;
  request.prompt_only = limit == 0;
  request.stop = fields.Stops("stop");
  request.dry_breakers =
      fields.Strings("dry_sequence_breakers", server::kDryBreakersMax, server::kDryBreakerBytesMax);
  request.ignore_eos = fields.Bool("ignore_eos", false);
  constexpr double kMsMax = server::kTimeoutMax * 1000;
  request.prompt_ms_max = std::max(0.0, fields.Double("t_max_prompt_ms", 0, -1, kMsMax));
  request.predict_ms_max = std::max(0.0, fields.Double("t_max_predict_ms", 0, -1, kMsMax));
  out.response_fields = fields.Strings("response_fields", kResponseFieldsMax, kFieldBytesMax)
                            .value_or(std::vector<std::string>());
  request.logprobs = fields.Int32("n_probs", 0, 0, kLogprobsMax);
  if (request.logprobs == 0) request.logprobs = -1;
  out.stream = fields.Bool("stream", false);
  out.return_tokens = fields.Bool("return_tokens", false);
  request.progress = fields.Bool("return_progress", false) && out.stream;
  generation.choices = fields.Int32("n", 1, 1, 1);
  protocol::ReadAdapters(fields, generation);
  generation.grammar = protocol::ReadStructuredOutput(fields);
}

Result<Json> ParseObject(std::string_view body) {
  ASSIGN_OR_RETURN(Json json, protocol::ParseBody(body));
  // In llama-server, "" means no grammar.
  const Json* grammar = json.Find("grammar");
  if (grammar != nullptr && grammar->is_string() && grammar->as_string().empty())
    json.Set("grammar", nullptr);
  return json;
}

void ReadOtherFiles(Fields& fields, server::Infill& gap) {
  const Json* extra = fields.Find("input_extra");
  if (extra == nullptr) return;
  const auto refuse = [&fields] {
    fields.Fail("input_extra", StrCat("'input_extra' must be a list of at most ", kOtherFilesMax,
                                      " objects {\"text\", \"filename\"}"));
  };
  if (!extra->is_array() || extra->as_array().size() > kOtherFilesMax) return refuse();
  for (const Json& file : extra->as_array()) {
    const Json* text = file.is_object() ? file.Find("text") : nullptr;
    const Json* name = file.is_object() ? file.Find("filename") : nullptr;
    if (text == nullptr || !text->is_string() || (name != nullptr && !name->is_string()))
      return refuse();
    gap.others.push_back(
        {.name = name == nullptr ? "tmp" : name->as_string(), .text = text->as_string()});
  }
}

}  // namespace

Result<LlamaRequest> ParseCompletion(std::string_view body,
                                     const protocol::RequestDefaults& defaults) {
  ASSIGN_OR_RETURN(const Json json, ParseObject(body));
  Fields fields(json);
  LlamaRequest out;
  out.generation.prompt_field = "prompt";
  const Json* prompt = fields.Find("prompt");
  std::optional<std::vector<int>> ids;
  if (prompt != nullptr && prompt->is_array()) ids = protocol::ToInts(*prompt);
  if (prompt != nullptr && prompt->is_string()) {
    out.generation.prompts = {prompt->as_string()};
  } else if (ids.has_value() && !ids->empty()) {
    out.generation.prompts = {*std::move(ids)};
  } else {
    fields.Fail("prompt", "'prompt' must be a text or a list of token ids, one prompt a request");
  }
  ReadShared(fields, defaults, out);
  protocol::FinishFields(fields, defaults.strict_fields, out.generation);
  RETURN_IF_ERROR(fields.status());
  return out;
}

Result<LlamaRequest> ParseInfill(std::string_view body, const protocol::RequestDefaults& defaults) {
  ASSIGN_OR_RETURN(const Json json, ParseObject(body));
  Fields fields(json);
  LlamaRequest out;
  out.generation.prompt_field = "input_prefix";
  server::Infill gap;
  for (const char* name : {"input_prefix", "input_suffix"})
    if (fields.Find(name) == nullptr) fields.Fail(name, StrCat("'", name, "' is missing"));
  // "prompt" is the text after the prefix and before the cursor.
  gap.prefix = fields.String("input_prefix", "") + fields.String("prompt", "");
  gap.suffix = fields.String("input_suffix", "");
  ReadOtherFiles(fields, gap);
  ReadShared(fields, defaults, out);
  protocol::FinishFields(fields, defaults.strict_fields, out.generation);
  RETURN_IF_ERROR(fields.status());
  out.generation.prompts = {std::move(gap)};
  return out;
}

Json SettingsJson(const Request& request, int n_predict) {
  const SamplingParams& s = request.sampling;
  Json::Object out{{"n_predict", n_predict},
                   {"max_tokens", n_predict},
                   {"seed", Json::OfUnsigned(s.seed)},
                   {"ignore_eos", request.ignore_eos},
                   {"n_probs", std::max(0, request.logprobs)},
                   {"stop", Json::Array(request.stop.begin(), request.stop.end())}};
  for (const SamplingField& f : SamplingFields())
    out.emplace_back(f.llama, f.number != nullptr ? Json(s.*f.number) : Json(s.*f.whole));
  for (const Neutral& each : kNeutral) out.emplace_back(each.name, each.value);
  out.emplace_back("repeat_last_n", -1);
  return out;
}

}  // namespace thermocline::llama
