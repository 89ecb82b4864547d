// One generation as an HTTP answer: takes what the engine says, gives a whole response or the
// bytes of a stream. Knows nothing of connections, and leaves the answer's shape to its protocol.
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

// Thread-compatible: one connection's.
class Answer {
 public:
  struct Output {  // NOLINT(bugprone-exception-escape): Boost calls the move of a message noexcept
    std::string events;                    // of a stream; may be empty
    std::optional<HttpResponse> response;  // instead of a stream, and then the last
    bool whole = false;                    // Whole is to be called, or Take again
    bool last = false;                     // nothing follows
    bool failed = false;  // of the last events: an error, so that the connection ends with them
  };

  // Starts the generation. Errors as Submission::Start, whose `on_ready` this is, and as
  // RequestMemory::Hold::Grow for what the answer is made of.
  static Result<std::unique_ptr<Answer>> Start(server::Service& service, const ResponseHead& head,
                                               GenerationPlan plan, std::function<void()> on_ready);

  // Returns the output since the last call. Where that is much, the rest comes with the next:
  // call again when it is written.
  Output Take();
  // The answer that is no stream and no error, once everything is said; then it has ended.
  HttpResponse Whole();
  // Bytes of its text, at most; 0 for one that is no matter for the memory of requests.
  std::size_t whole_bytes_max() const;
  // True once Take or Whole has given the last output.
  bool ended() const { return ended_; }
  // The events that a stream begins with before any token; "" for an answer that is not streamed.
  std::string Open();
  // Returns the bytes that keep a silent connection alive; "" for an answer that is not streamed.
  std::string KeepAlive();
  // True if they tell the client that its prompt is read; then it comes every second.
  bool tells_progress() const;
  // For the stream.
  const char* content_type() const { return format_->content_type(); }
  const server::Generation& generation() const { return *generation_; }
  // The client is gone: the work ends, unless it has.
  void Leave(CancelCause cause);

 private:
  struct Choice {
    bool begun = false;  // its first words were given
    Usage usage = {};    // once it has ended
    int reasoning_tokens = 0;
    std::optional<chat::OutputParser> parser = {};  // nothing: text is text
  };
  Answer(server::Service& service, const ResponseHead& head, GenerationPlan& plan);

  bool large() const { return kept_bytes_ > server::kSmallAnswerBytes; }
  void Hear(int index, Output& output);
  // Reads `update_` into parts_.
  void Read(Choice& choice);
  // True if that was reasoning.
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
  int next_ = 0;        // the choice that is heard next
  bool begun_ = false;  // events were given
  bool said_ = false;   // every choice has ended
  bool ended_ = false;
  const std::size_t kept_bytes_;
  server::RequestMemory::Hold kept_;
};

}  // namespace thermocline::http
