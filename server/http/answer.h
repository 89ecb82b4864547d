// One generation as an HTTP answer: takes the engine's output and makes a complete response or the
// events of a stream. It is independent of connections, and the protocol's AnswerFormat sets its
// form.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/core/generation.h"
#include "server/core/service.h"
#include "server/http/generation_plan.h"
#include "server/http/response.h"

namespace thermocline::http {

// Thread-compatible; owned by one connection.
class Answer {
 public:
  struct Output {  // NOLINT(bugprone-exception-escape): Boost calls the move of a message noexcept
    std::string events;                    // of a stream; may be empty
    std::optional<HttpResponse> response;  // set instead of a stream; always the last output
    bool complete = false;                 // FullResponse must be called, or NextOutput again
    bool last = false;                     // no output follows
    bool failed = false;  // the events end with an error, and the connection with them
  };

  // Starts the generation; `on_ready` as in Submission::Start. Errors as there, and as
  // RequestMemory::Hold::Grow for the answer's data.
  static Result<std::unique_ptr<Answer>> Start(server::Service& service, const ResponseHead& head,
                                               GenerationPlan plan, std::function<void()> on_ready);

  // Returns the output since the last call. Long output comes in several pieces: call again when
  // this one is written.
  Output NextOutput();
  // The complete response, if it is neither a stream nor an error; the answer has ended then.
  HttpResponse FullResponse();
  // An upper bound of the response's text in bytes; 0 if it is too small for RequestMemory.
  std::size_t whole_bytes_max() const;
  // True once NextOutput or FullResponse has returned the last output.
  bool ended() const { return ended_; }
  // The first events of a stream, before any token; "" for an answer that is not streamed.
  std::string Open();
  // Returns the bytes that keep a silent connection alive; "" for an answer that is not streamed.
  std::string KeepAlive();
  // True if KeepAlive reports the progress of prefill; then it is due every second.
  bool tells_progress() const;
  // The content type of a stream.
  const char* content_type() const { return format_->content_type(); }
  const server::Generation& generation() const { return *generation_; }
  // The client has disconnected: cancels the work that has not ended.
  void Cancel(CancelCause cause);

 private:
  struct Choice {
    bool begun = false;  // its first output was taken
    Usage usage = {};    // set once it has ended
    int reasoning_tokens = 0;
    std::optional<chat::OutputParser> parser = {};  // nullopt: the output is plain text
  };
  Answer(server::Service& service, const ResponseHead& head, GenerationPlan& plan);

  bool large() const { return kept_bytes_ > server::kSmallAnswerBytes; }
  void OnUpdate(int index, Output& output);
  // Parses `update_` into parts_.
  void Read(Choice& choice);
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
  const int choices_per_prompt_;
  std::vector<int> prompt_tokens_;  // [prompts]
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
