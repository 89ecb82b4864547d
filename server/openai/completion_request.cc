#include "server/openai/completion_request.h"

namespace thermocline::openai {
namespace {

std::optional<Prompt> ReadPrompt(const Json& value) {
  if (value.is_string()) return value.as_string();
  auto tokens = ToInts(value);
  if (!tokens.has_value() || tokens->empty()) return std::nullopt;
  return *std::move(tokens);
}

// `best_of` beyond `n` would generate what nobody sees; `suffix` needs a model that fills in.
void RefuseUnsupported(Fields& fields, int choices) {
  RefuseFields(fields, {"suffix", "tools", "functions", "response_format"});
  if (fields.Find("best_of") != nullptr &&
      fields.Int("best_of", 1, 1, kChoicesPerPromptMax) != choices)
    fields.Fail("best_of", "'best_of' other than 'n' is not supported", "unsupported_value");
}

}  // namespace

std::optional<std::vector<Prompt>> ReadPrompts(const Json& value) {
  if (auto one = ReadPrompt(value)) return std::vector{*std::move(one)};
  if (!value.is_array() || value.as_array().empty() || value.as_array().size() > kPromptsMax)
    return std::nullopt;
  std::vector<Prompt> prompts;
  for (const Json& item : value.as_array()) {
    auto prompt = ReadPrompt(item);
    if (!prompt.has_value()) return std::nullopt;
    prompts.push_back(*std::move(prompt));
  }
  return prompts;
}

std::variant<CompletionRequest, ApiError> ParseCompletionRequest(std::string_view body,
                                                                 const RequestDefaults& defaults,
                                                                 FieldLog* log) {
  const auto json = base::ParseJson(body);
  if (!json.ok()) return FromStatus(json.status());
  Fields fields(*json, log);
  if (!json->is_object()) {
    fields.Fail("", StrCat("the body must be a JSON object, not a ", json->type_name()));
    return fields.error();
  }
  CompletionRequest out;
  const Json* prompt = fields.Find("prompt");
  auto prompts = prompt == nullptr ? std::nullopt : ReadPrompts(*prompt);
  if (prompts.has_value()) {
    out.prompts = *std::move(prompts);
  } else {
    fields.Fail("prompt",
                StrCat("'prompt' must be a string, a list of token ids, or a list of 1 to ",
                       kPromptsMax, " of either"));
  }
  ReadCommon(fields, defaults, 0, out);
  out.echo = fields.Bool("echo", false);
  out.request.logprobs = static_cast<int>(fields.Int("logprobs", -1, 0, kLegacyLogprobsMax));
  out.request.prompt_logprobs = out.echo && out.request.logprobs >= 0;
  if (out.request.prompt_only && !out.echo)
    fields.Fail("max_tokens", "'max_tokens' of 0 needs 'echo': true");
  if (out.prompts.size() * static_cast<std::size_t>(out.choices) > kPromptsMax)
    fields.Fail("n", StrCat("'prompt' and 'n' ask for more than ", kPromptsMax, " choices"));
  RefuseUnsupported(fields, out.choices);
  if (!fields.ok()) return fields.error();
  return out;
}

}  // namespace thermocline::openai
