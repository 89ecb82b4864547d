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
  // A prompt that its choices begin with (`echo`).
  struct Echo {
    std::string text;
    bool bos_added = false;  // its first token is not part of the text
  };
  // `echoes`: [prompts], or none. `submission`: encoded. `tokenizer` must live as long.
  CompletionAnswer(const AnswerHead& head, const text::Tokenizer& tokenizer,
                   const server::Submission& submission, std::vector<Echo> echoes, bool stream);

  std::string Begin(int) override { return ""; }
  std::string Say(const server::Said& said) override;

 protected:
  Json Nothing() const override { return ""; }
  std::vector<Json::Object> WholeChoices() override;

 private:
  struct Choice {
    bool begun = false;
    std::string text;
    std::optional<LegacyLogprobs> logprobs;
    std::vector<TokenChannel::Score> scores;  // of a whole answer, until it is written
  };
  // The text that a choice begins with.
  std::string Echoed(const server::Said& said, Choice& choice);

  const bool stream_;
  const int choices_per_prompt_;
  const std::vector<Echo> echoes_;
  std::vector<int> first_tokens_;  // [prompts]
  std::vector<Choice> choices_;
};

}  // namespace thermocline::openai
