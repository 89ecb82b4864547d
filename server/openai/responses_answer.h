// Answers of /v1/responses: items, and the events of a stream.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/base/json_list.h"
#include "engine/text/tokenizer.h"
#include "server/openai/response.h"

namespace thermocline::openai {

class ResponsesAnswer final : public server::AnswerFormat {
 public:
  struct Params {
    std::string model;
    Json::Object echo;           // repeats the request
    int logprobs = -1;           // as in Request::logprobs
    int default_max_tokens = 0;  // as in GenerationRequest
  };
  // `tokenizer` must outlive this.
  ResponsesAnswer(const text::Tokenizer& tokenizer, Params params);

  // Returns response.created and response.in_progress.
  std::string Open() override;
  std::string OnStart(int choice) override;
  std::string OnDelta(const server::ChoiceDelta& delta) override;
  std::string OnEnd(const server::ChoiceEnd& end) override;
  Json FullResponse(const Usage& total) override;
  std::size_t EchoBytes() const override { return echo_bytes_; }
  bool repeats_output() const override { return true; }
  std::string Fail(const Status& status, CancelCause cause) override;
  // Returns response.in_progress: Codex's idle timer ignores comments.
  std::string KeepAlive() override;
  bool tells_progress() const override { return true; }
  // Kept for the next KeepAlive.
  std::string Progress(const server::PromptProgress& progress) override;

 private:
  enum class Kind { kReasoning, kMessage, kCall };
  struct Item {
    Kind kind;
    std::string id, call_id, name;
    std::string text;  // for a call: its arguments
    base::JsonList logprobs = {};
    bool done = false;
  };
  std::string Event(const char* type, Json::Object body);
  // An event of the last item.
  std::string ItemEvent(const char* type, Json::Object body);
  std::string Open(Kind kind, const chat::MessagePart& part);
  std::string Close();
  Json ItemJson(const Item& item, bool empty = false) const;
  Json PartJson(const Item& item, bool empty = false) const;
  Json ResponseJson(const char* status, const Usage* usage) const;

  const text::Tokenizer& tokenizer_;
  const Params params_;
  const std::string id_;
  const std::int64_t created_;
  std::vector<Item> items_;
  std::size_t echo_bytes_ = 0;
  int sequence_ = 0;
  bool opened_ = false;
  int bound_ = 0;  // the server's token limit, if it ended the answer
  FinishReason reason_ = FinishReason::kNone;
  std::optional<server::PromptProgress> progress_;
};

}  // namespace thermocline::openai
