#include "engine/request_validation.h"

#include <algorithm>

#include "engine/base/index.h"
#include "engine/spec/set_up.h"

namespace thermocline {
namespace {

// Checks logprobs, priority and min_tokens.
Status ValidateAsked(const Request& request, int vocab_size) {
  if (request.logprobs < -1 || request.logprobs > std::min(kLogprobsMax, vocab_size))
    return base::InvalidArgument("logprobs is ", request.logprobs, "; it must lie in [0, ",
                                 std::min(kLogprobsMax, vocab_size), "]")
        .WithField("logprobs");
  if (request.prompt_logprobs && request.logprobs < 0)
    return base::InvalidArgument("logprobs: those of the prompt need those of the tokens")
        .WithField("logprobs");
  if (request.priority < kPriorityMin || request.priority > kPriorityMax)
    return base::InvalidArgument("priority is ", request.priority, "; it must lie in [",
                                 kPriorityMin, ", ", kPriorityMax, "]")
        .WithField("priority");
  if (request.sampling.min_tokens < 0 ||
      (request.max_tokens > 0 && request.sampling.min_tokens > request.max_tokens))
    return base::InvalidArgument("min_tokens is ", request.sampling.min_tokens,
                                 "; it must lie in [0, max_tokens]")
        .WithField("min_tokens");
  return OkStatus();
}

// Checks the texts of EmbedRequest: none is empty, and each fits the context.
Status ValidateTexts(const EmbedRequest& embed, int tokens, const RequestBounds& bounds) {
  int begin = 0;
  for (const int end : embed.ends) {
    if (end <= begin) return base::InvalidArgument("a text has no tokens");
    if (end - begin > bounds.context_length)
      return base::OutOfRange("a text has ", end - begin, " tokens; the context has ",
                              bounds.context_length, ": send it in parts")
          .WithReason(Reason::kContextLength)
          .WithNumber("n_prompt_tokens", end - begin)
          .WithNumber("n_ctx", bounds.context_length);
    begin = end;
  }
  if (begin != tokens) return base::InvalidArgument("the texts are not the whole prompt");
  return OkStatus();
}

Status ValidatePrompt(const Request& request, const RequestBounds& bounds) {
  const std::vector<int>& prompt = request.prompt;
  if (prompt.empty()) return base::InvalidArgument("the prompt is empty");
  if (request.embed.has_value()) {
    RETURN_IF_ERROR(ValidateTexts(*request.embed, base::IntSize(prompt), bounds));
  } else if (base::IntSize(prompt) >= bounds.context_length) {
    return base::OutOfRange("the prompt has ", prompt.size(),
                            " tokens, and at least one more must fit the context of ",
                            bounds.context_length, " tokens; shorten the conversation")
        .WithReason(Reason::kContextLength)
        .WithNumber("n_prompt_tokens", prompt.size())
        .WithNumber("n_ctx", bounds.context_length);
  }
  for (const int token : prompt) {
    if (token < 0 || token >= bounds.vocab_size)
      return base::InvalidArgument("token id ", token, " is beyond the vocabulary of ",
                                   bounds.vocab_size);
  }
  return OkStatus();
}

}  // namespace

Status ValidateRequest(const Request& request, const RequestBounds& bounds) {
  const int vocab_size = bounds.vocab_size;
  const Status prompt = ValidatePrompt(request, bounds);
  if (!prompt.ok()) return prompt.WithField("prompt");
  if (request.max_tokens < 0)
    return base::InvalidArgument("max_tokens is ", request.max_tokens, "; it must be at least 1")
        .WithField("max_tokens");
  const auto known = [vocab_size](const char* field, int token) {
    if (token >= 0 && token < vocab_size) return OkStatus();
    return base::InvalidArgument(field, ": token id ", token, " is beyond the vocabulary of ",
                                 vocab_size)
        .WithField(field);
  };
  for (const auto& [token, bias] : request.sampling.logit_bias)
    RETURN_IF_ERROR(known("logit_bias", token));
  for (const int token : request.stop_tokens) RETURN_IF_ERROR(known("stop_token_ids", token));
  RETURN_IF_ERROR(ValidateAsked(request, vocab_size));
  for (const std::string& stop : request.stop) {
    if (stop.empty())
      return base::InvalidArgument("stop: an empty string would stop at once").WithField("stop");
  }
  return ValidateSampling(request.sampling);
}

Status ValidateSpeculation(const Request& request, SpecMode loaded, const std::string& not_ahead) {
  const SpecMode mode = request.spec_mode.value_or(loaded);
  if (request.spec_mode.has_value() && mode != SpecMode::kOff && loaded == SpecMode::kOff)
    return base::FailedPrecondition("spec.mode '", SpecModeName(mode),
                                    "': the model was loaded with spec.mode off")
        .WithField("spec.mode");
  if (request.spec_mode.has_value() && DraftsAhead(mode) && !not_ahead.empty())
    return base::FailedPrecondition("spec.mode '", SpecModeName(mode), "': ", not_ahead,
                                    "; ask for sync or auto")
        .WithField("spec.mode");
  if (request.spec_tokens > kDraftTokensMax)
    return base::InvalidArgument("draft_tokens is ", request.spec_tokens, "; a draft has at most ",
                                 kDraftTokensMax, " tokens")
        .WithField("draft_tokens");
  return OkStatus();
}

}  // namespace thermocline
