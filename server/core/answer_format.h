// The response format of one protocol. It turns the choices' output into the events of a stream or
// into one complete response.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "engine/api/token_channel.h"
#include "engine/base/json.h"
#include "server/chat/message_part.h"

namespace thermocline::server {

// The new output of a choice.
struct ChoiceDelta {
  int choice = 0;
  std::span<const chat::MessagePart> parts = {};
  std::span<const int> tokens = {};
  // Scores as in TokenChannel::Update.
  std::span<const TokenChannel::Score> scores = {}, prompt_scores = {};
  std::span<const std::vector<float>> embeddings = {};  // embeddings as in TokenChannel::Update
};

// The progress of a prompt's prefill.
struct PromptProgress {
  int choice = 0;
  int total = 0, cached = 0, read = 0;  // tokens
  double ms = 0;                        // since the request arrived
};

struct ChoiceEnd {
  int choice = 0;
  FinishReason reason = FinishReason::kStop;
  Usage usage = {};   // of this choice
  bool last = false;  // every choice has ended
  Usage total = {};   // of all choices; set with `last`
};

// Formats one response; thread-compatible. For a response that is not a stream, the returned bytes
// are discarded and FullResponse makes the response.
class AnswerFormat {
 public:
  virtual ~AnswerFormat() = default;

  virtual const char* content_type() const { return "text/event-stream"; }
  // The event sent when the request is admitted, before prefill; "" where the protocol has none.
  // Clients' timers count events, not comments.
  virtual std::string Open() { return ""; }
  // Called before a choice's first output.
  virtual std::string OnStart(int choice) = 0;
  virtual std::string OnDelta(const ChoiceDelta& delta) = 0;
  virtual std::string Progress(const PromptProgress&) { return ""; }
  virtual std::string OnEnd(const ChoiceEnd& end) = 0;
  // Called once every choice has ended.
  virtual Json FullResponse(const Usage& total) = 0;
  // Bytes of the request that the response repeats, times the copies that exist at once.
  virtual std::size_t EchoBytes() const { return 0; }
  // True if the last events of a stream repeat all of its output.
  virtual bool repeats_output() const { return false; }
  // The end of a stream that failed.
  virtual std::string Fail(const Status& status, CancelCause cause) = 0;
  // Returns the text that keeps a silent stream alive; "" if the protocol has none.
  virtual std::string KeepAlive() { return ": keep-alive\n\n"; }
  // True if KeepAlive returns an event that resets clients' timers, so that it should be sent
  // often.
  virtual bool tells_progress() const { return false; }
};

}  // namespace thermocline::server
