// Answers of /v1/completions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "server/core/submission.h"
#include "server/openai/logprobs.h"
#include "server/openai/response.h"

namespace thermocline::openai {

class CompletionAnswer final : public ChoicesAnswer {
 public:
  // A prompt that its choices repeat (`echo`).
  struct Echo {
    std::string text;
    bool bos_added = false;  // its first token is not part of the text
  };
  // `echoes`: [prompts], or empty. `submission`: encoded. `tokenizer` must outlive this.
  CompletionAnswer(const AnswerHead& head, const text::Tokenizer& tokenizer,
                   const server::Submission& submission, std::vector<Echo> echoes, bool stream);

  std::string OnStart(int) override { return ""; }
  std::string OnDelta(const server::ChoiceDelta& delta) override;

 protected:
  Json EmptyDelta() const override { return ""; }
  std::vector<Json::Object> WholeChoices() override;

 private:
  struct Choice {
    bool begun = false;
    std::string text;
    std::optional<LegacyLogprobs> logprobs;
    std::vector<TokenChannel::Score> scores;  // of a complete response, until it is written
  };
  // The repeated prompt at a choice's start.
  std::string Echoed(const server::ChoiceDelta& delta, Choice& choice);

  const bool stream_;
  const int choices_per_prompt_;
  const std::vector<Echo> echoes_;
  std::vector<int> first_tokens_;  // [prompts]
  std::vector<Choice> choices_;
};

}  // namespace thermocline::openai
