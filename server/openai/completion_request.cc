#include "server/openai/completion_request.h"

namespace thermocline::openai {
namespace {

std::optional<server::Prompt> ReadPrompt(const Json& value) {
  if (value.is_string()) return value.as_string();
  auto tokens = protocol::ToInts(value);
  if (!tokens.has_value() || tokens->empty()) return std::nullopt;
  return *std::move(tokens);
}

// `best_of` above `n` would generate choices that are not returned.
void RefuseUnsupported(protocol::Fields& fields, int choices) {
  if (fields.Find("best_of") != nullptr &&
      fields.Int("best_of", 1, 1, protocol::kChoicesPerPromptMax) != choices)
    fields.FailUnsupported("best_of", "'best_of' other than 'n' is not supported");
}

// Reads "suffix": the text after the gap that the answer fills.
void ReadSuffix(protocol::Fields& fields, CompletionRequest& out) {
  const std::string suffix = fields.String("suffix", "");
  if (suffix.empty()) return;
  out.generation.suffix_field = "suffix";
  if (out.echo) fields.FailUnsupported("suffix", "'suffix' with 'echo' is not supported");
  for (server::Prompt& prompt : out.generation.prompts) {
    auto* text = std::get_if<std::string>(&prompt);
    if (text == nullptr)
      return fields.Fail("suffix", "'suffix' needs a 'prompt' of text, not of token ids");
    prompt = server::Infill{.prefix = std::move(*text), .suffix = suffix};
  }
}

}  // namespace

std::optional<std::vector<server::Prompt>> ReadPrompts(const Json& value) {
  if (auto one = ReadPrompt(value)) return std::vector{*std::move(one)};
  if (!value.is_array() || value.as_array().empty() || value.as_array().size() > kPromptsMax)
    return std::nullopt;
  std::vector<server::Prompt> prompts;
  for (const Json& item : value.as_array()) {
    auto prompt = ReadPrompt(item);
    if (!prompt.has_value()) return std::nullopt;
    prompts.push_back(*std::move(prompt));
  }
  return prompts;
}

Result<CompletionRequest> ParseCompletionRequest(std::string_view body,
                                                 const protocol::RequestDefaults& defaults,
                                                 protocol::FieldLog* log) {
  ASSIGN_OR_RETURN(const Json json, protocol::ParseBody(body));
  protocol::Fields fields(json, log);
  CompletionRequest out;
  out.generation.prompt_field = "prompt";
  const Json* prompt = fields.Find("prompt");
  auto prompts = prompt == nullptr ? std::nullopt : ReadPrompts(*prompt);
  if (prompts.has_value()) {
    out.generation.prompts = *std::move(prompts);
  } else {
    fields.Fail("prompt",
                StrCat("'prompt' must be a string, a list of token ids, or a list of 1 to ",
                       kPromptsMax, " of either"));
  }
  protocol::ReadCommon(fields, defaults, 0, out);
  out.echo = fields.Bool("echo", false);
  ReadSuffix(fields, out);
  out.generation.request.logprobs = fields.Int32("logprobs", -1, 0, kLegacyLogprobsMax);
  out.generation.request.prompt_logprobs = out.echo && out.generation.request.logprobs >= 0;
  if (out.generation.request.prompt_only && !out.echo)
    fields.Fail("max_tokens", "'max_tokens' of 0 needs 'echo': true");
  if (out.generation.prompts.size() * out.generation.choices > kPromptsMax)
    fields.Fail("n", StrCat("'prompt' and 'n' ask for more than ", kPromptsMax, " choices"));
  RefuseUnsupported(fields, out.generation.choices);
  protocol::FinishFields(fields, defaults.strict_fields, out.generation);
  if (!fields.ok()) return fields.status();
  return out;
}

}  // namespace thermocline::openai
