// The common part of the answers of /v1/chat/completions and /v1/completions.
#pragma once

#include <string>
#include <vector>

#include "engine/api/request.h"
#include "engine/base/json.h"
#include "server/core/answer_format.h"

namespace thermocline::openai {

// The fields that all parts of one answer share.
struct AnswerHead {
  bool chat = true;          // false: /v1/completions
  std::string id;            // "chatcmpl-..." or "cmpl-..."
  std::int64_t created = 0;  // Unix time
  std::string model;
  bool include_usage = false;
  int default_max_tokens = 0;  // as in GenerationRequest
};

AnswerHead MakeAnswerHead(bool chat, const std::string& model, bool include_usage,
                          int default_max_tokens = 0);
// The last event of a stream.
inline constexpr const char* kDoneEvent = "data: [DONE]\n\n";

// The common parts: chunks, ends, complete responses. Derived classes format the choices.
class ChoicesAnswer : public server::AnswerFormat {
 public:
  explicit ChoicesAnswer(AnswerHead head) : head_(std::move(head)) {}

  // Source: llama.cpp's server. Only these chunks have no choices.
  std::string Progress(const server::PromptProgress& progress) override;
  // The end of a choice. Timings are in the last chunk of all: the one with the usage or, if no
  // usage was requested, the end of the last choice.
  std::string OnEnd(const server::ChoiceEnd& end) override;
  Json FullResponse(const Usage& total) override;
  // Omits [DONE], so that it is not mistaken for success.
  std::string Fail(const Status& status, CancelCause cause) override;

 protected:
  // A chunk of one choice: `delta` is its delta object or its text.
  std::string Chunk(int choice, Json delta, Json logprobs = {}, Json reason = {},
                    const Usage* usage = nullptr) const;
  // The delta or text of a choice without content.
  virtual Json EmptyDelta() const = 0;
  // The name of the reason why a choice ended.
  virtual const char* ReasonName(int choice, FinishReason reason) const;
  // Every choice, without index and finish_reason.
  virtual std::vector<Json::Object> WholeChoices() = 0;

 private:
  std::string Envelope(Json::Array choices, const Usage* usage, bool is_usage) const;

  const AnswerHead head_;
  std::vector<FinishReason> reasons_;  // of ended choices
  int bound_ = 0;                      // the server's token limit, if it ended a choice
};

}  // namespace thermocline::openai
