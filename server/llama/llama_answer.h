// Answers of llama-server's /completion and /infill.
#pragma once

#include <string>
#include <vector>

#include "engine/text/tokenizer.h"
#include "server/core/answer_format.h"

namespace thermocline::llama {

class LlamaAnswer final : public server::AnswerFormat {
 public:
  struct Params {
    std::string model = {};
    std::string prompt = {};  // as text
    int prompt_tokens = 0;
    Json settings = {};  // SettingsJson
    std::vector<std::string> stops = {};
    bool stream = false;
    bool return_tokens = false;
    int probabilities = 0;                          // alternatives per token
    std::vector<std::string> response_fields = {};  // as in LlamaRequest
  };
  // Borrows the tokenizer.
  LlamaAnswer(const text::Tokenizer& tokenizer, Params params)
      : tokenizer_(tokenizer), params_(std::move(params)) {}

  std::string OnStart(int) override { return ""; }
  std::string OnDelta(const server::ChoiceDelta& delta) override;
  std::string Progress(const server::PromptProgress& progress) override;
  std::string OnEnd(const server::ChoiceEnd& end) override;
  Json FullResponse(const Usage& total) override;
  std::string Fail(const Status& status, CancelCause cause) override;

 private:
  // `text` and `tokens`: those that no earlier event contained.
  Json Last(std::string text, Json tokens, const Usage& usage) const;
  // The requested members of `answer`, by their paths.
  Json Picked(Json answer) const;

  const text::Tokenizer& tokenizer_;
  const Params params_;
  std::string text_;
  std::vector<int> tokens_;                  // of a complete response
  std::vector<TokenChannel::Score> scores_;  // of a complete response
  int predicted_ = 0;
  FinishReason reason_ = FinishReason::kStop;
  int stop_ = -1;
};

}  // namespace thermocline::llama
