// Answers of /v1/messages: content blocks, and the events of a stream.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "server/core/answer_format.h"

namespace thermocline::anthropic {

class MessagesAnswer final : public server::AnswerFormat {
 public:
  struct Params {
    std::string model;
    int prompt_tokens = 0, max_tokens = 0;
    std::vector<std::string> stops;  // as in Request::stop
  };
  explicit MessagesAnswer(Params params);

  // Returns message_start and ping.
  std::string Open() override;
  std::string OnStart(int choice) override;
  std::string OnDelta(const server::ChoiceDelta& delta) override;
  std::string OnEnd(const server::ChoiceEnd& end) override;
  Json FullResponse(const Usage& total) override;
  std::string Fail(const Status& status, CancelCause cause) override;
  std::string KeepAlive() override;
  bool tells_progress() const override { return true; }
  // Kept for the next KeepAlive.
  std::string Progress(const server::PromptProgress& progress) override;

 private:
  struct Block {
    chat::MessagePart::Kind kind;  // kText, kReasoning or kCallBegin
    std::string text;              // for a call: its input as JSON text
    std::string id, name;
  };
  std::string Open(const chat::MessagePart& part);
  std::string Close();
  Json BlockJson(const Block& block) const;
  Json MessageJson(const Usage& usage) const;

  const Params params_;
  const std::string id_;
  std::vector<Block> blocks_;
  bool begun_ = false, open_ = false;
  std::string stop_reason_;  // "" = it has not ended
  int stop_ = -1;            // index into params_.stops
  std::optional<server::PromptProgress> progress_;
};

}  // namespace thermocline::anthropic
