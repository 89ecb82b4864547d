#include "server/http/prompts.h"

#include <chrono>

#include "engine/text/tokenizer.h"
#include "server/core/prompt.h"

namespace thermocline::http {
namespace {

using server::Service;

// `status` of a prompt with `count` tokens.
openai::ApiError Refusal(const Service& service, const char* param, const Status& status,
                         std::size_t count) {
  openai::ApiError error = openai::FromStatus(status, param);
  if (status.code() == StatusCode::kOutOfRange) {
    error.details = {{"n_prompt_tokens", static_cast<std::int64_t>(count)},
                     {"n_ctx", service.engine()->Stats().context_length}};
  }
  return error;
}

// Runs `encode`, counting the time it takes.
template <typename Encode>
PromptOrError Encoded(Service& service, const char* param, const Encode& encode) {
  const auto begin = std::chrono::steady_clock::now();
  std::size_t count = 0;
  auto tokens = encode(count);
  service.metrics().Tokenized(
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  if (!tokens.ok()) return Refusal(service, param, tokens.status(), count);
  return EncodedPrompt{.tokens = *std::move(tokens)};
}

}  // namespace

PromptOrError ChatPrompt(Service& service, const Json& conversation) {
  return Encoded(service, "messages", [&](std::size_t& count) {
    return server::EncodeChat(service, conversation, server::PromptLimit::kContext, &count);
  });
}

PromptOrError RawPrompt(Service& service, const openai::Prompt& prompt) {
  if (const auto* ids = std::get_if<std::vector<int>>(&prompt)) {
    const Status known = server::CheckTokens(service, *ids);
    if (!known.ok()) return openai::FromStatus(known, "prompt");
    const int n_ctx = service.engine()->Stats().context_length;
    if (ids->size() < static_cast<std::size_t>(n_ctx)) return EncodedPrompt{.tokens = *ids};
    return Refusal(service, "prompt",
                   base::OutOfRange("This model's maximum context length is ", n_ctx,
                                    " tokens; your prompt has ", ids->size(),
                                    " tokens, which exceeds the available context size."),
                   ids->size());
  }
  auto encoded = Encoded(service, "prompt", [&](std::size_t& count) {
    return server::EncodeText(service, std::get<std::string>(prompt), {}, &count);
  });
  auto* text = std::get_if<EncodedPrompt>(&encoded);
  if (text == nullptr) return encoded;
  const model::Vocabulary& v = service.engine()->tokenizer().vocabulary();
  // An empty text begins at the beginning, also for vocabularies that do not ask for it.
  if (text->tokens.empty() && v.bos >= 0) text->tokens = {v.bos};
  if (text->tokens.empty())
    return openai::FromStatus(base::InvalidArgument("'prompt' is empty"), "prompt");
  text->bos_added = v.add_bos || std::get<std::string>(prompt).empty();
  return encoded;
}

}  // namespace thermocline::http
