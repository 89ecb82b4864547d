// Answers of /v1/chat/completions.
#pragma once

#include <string>
#include <vector>

#include "engine/text/tokenizer.h"
#include "server/openai/response.h"

namespace thermocline::openai {

class ChatAnswer final : public ChoicesAnswer {
 public:
  struct Params {
    int choices = 1;
    int logprobs = -1;        // as in Request::logprobs
    bool named_tool = false;  // a certain tool had to be called; the answer then ends with "stop"
  };
  // `tokenizer` must outlive this.
  ChatAnswer(const AnswerHead& head, const text::Tokenizer& tokenizer, const Params& params);

  std::string OnStart(int choice) override;
  std::string OnDelta(const server::ChoiceDelta& delta) override;

 protected:
  Json EmptyDelta() const override { return Json::Object{}; }
  const char* ReasonName(int choice, FinishReason reason) const override;
  std::vector<Json::Object> WholeChoices() override;

 private:
  struct Choice {
    chat::WholeMessage message;
    std::vector<TokenChannel::Score> scores;
  };
  const text::Tokenizer& tokenizer_;
  const Params params_;
  std::vector<Choice> choices_;
};

}  // namespace thermocline::openai
