// One generation as an HTTP answer: takes the engine's output and makes a complete response or the
// events of a stream. The protocol's AnswerFormat sets its form.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/core/generation.h"
#include "server/core/service.h"
#include "server/http/answer.h"
#include "server/http/generation_plan.h"
#include "server/http/response.h"

namespace thermocline::http {

class GeneratedAnswer : public Answer {
 public:
  // Starts the generation; `on_ready` as in Submission::Start. Errors as there, and as
  // RequestMemory::Hold::Grow for the answer's data.
  static Result<std::unique_ptr<Answer>> Start(server::Service& service, const ResponseHead& head,
                                               GenerationPlan plan, std::function<void()> on_ready);

  Output NextOutput() override;
  HttpResponse FullResponse() override;
  std::size_t whole_bytes_max() const override;
  std::optional<std::size_t> rest_bytes_max() const override;
  bool ended() const override { return ended_; }
  std::string Open() override;
  std::string KeepAlive() override;
  bool tells_progress() const override;
  const char* content_type() const override { return format_->content_type(); }
  const server::Generation* generation() const override { return generation_.get(); }
  void SetReadCounter(const std::shared_ptr<const std::atomic<std::int64_t>>& bytes) override {
    generation_->SetReadCounter(bytes);
  }
  bool given_up() const override { return generation_->given_up(); }
  void Cancel(CancelCause cause) override;

 private:
  struct Choice {
    bool begun = false;  // its first output was taken
    Usage usage = {};    // set once it has ended
    int reasoning_tokens = 0;
    std::optional<chat::OutputParser> parser = {};  // nullopt: the output is plain text
    chat::WholeMessage whole = {};                  // for the token memory
    std::vector<int> tokens = {};                   // likewise
  };
  GeneratedAnswer(server::Service& service, const ResponseHead& head, GenerationPlan& plan);

  bool large() const { return kept_bytes_ > server::kSmallAnswerBytes; }
  // The end of an answer that was given up. Output that was not taken is dropped.
  Output GiveUp();
  void OnUpdate(int index, Output& output);
  // Parses `update_` into parts_.
  void Read(Choice& choice);
  // Collects the choice's output for the token memory, if its answer may be remembered.
  void Collect(int index);
  void Remember(int index);
  // Counts the tokens that the memory had and the part in which the prompt left the cached ones.
  void CountPrompt(int index);
  // True if the update was reasoning.
  bool Reasoned(const Choice& choice) const;
  void ReportProgress(int index, Output& output);
  void CountCalls(const chat::CallTally& tally);
  void FinishChoice(int index, Output& output);
  void Fail(Output& output);
  Usage Total() const;

  server::Service& service_;
  const ResponseHead head_;
  const std::unique_ptr<server::AnswerFormat> format_;
  const bool stream_, progress_;
  const int choices_per_prompt_, reasoning_budget_;
  std::vector<int> prompt_tokens_;  // [prompts]
  std::vector<int> replayed_;       // [prompts]: tokens that the token memory had
  // [prompts]; nullopt: the answers are not remembered
  const std::vector<std::optional<server::AnswerPlace>> places_;
  const std::vector<std::optional<server::PromptParts>> parts_of_;  // [prompts]
  std::shared_ptr<server::Generation> generation_;
  std::vector<Choice> choices_;
  TokenChannel::Update update_;
  std::vector<chat::MessagePart> parts_;
  int next_ = 0;                // the choice to take from next
  bool begun_ = false;          // events were returned
  bool choices_ended_ = false;  // every choice has ended
  bool ended_ = false;
  const std::size_t kept_bytes_;
  server::RequestMemory::Hold kept_;
};

}  // namespace thermocline::http
