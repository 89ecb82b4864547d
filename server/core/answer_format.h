// The shape that one protocol gives an answer. Told what the choices say, it gives the bytes of a
// stream or, in the end, the whole.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "engine/api/token_channel.h"
#include "engine/base/json.h"
#include "server/chat/message_part.h"

namespace thermocline::server {

// The output of a choice.
struct Said {
  int choice = 0;
  std::span<const chat::MessagePart> parts = {};
  std::span<const int> tokens = {};
  std::span<const TokenChannel::Score> scores = {}, prompt_scores = {};  // as TokenChannel::Update
  std::span<const std::vector<float>> embeddings = {};                   // the same
};

// The progress of reading a prompt.
struct PromptProgress {
  int choice = 0;
  int total = 0, cached = 0, read = 0;  // tokens
  double ms = 0;                        // since the request came
};

struct ChoiceEnd {
  int choice = 0;
  FinishReason reason = FinishReason::kStop;
  Usage usage = {};   // of this choice
  bool last = false;  // every choice has ended
  Usage total = {};   // of all, with `last`
};

// One answer's; thread-compatible. Of an answer that is no stream the bytes are not used: then
// Whole is.
class AnswerFormat {
 public:
  virtual ~AnswerFormat() = default;

  virtual const char* content_type() const { return "text/event-stream"; }
  // Sent when the request is admitted, before its prompt is computed; "" where the protocol has no
  // event for that. Clients' timers count events, not comments.
  virtual std::string Open() { return ""; }
  // Before a choice's first words.
  virtual std::string Begin(int choice) = 0;
  virtual std::string Say(const Said& said) = 0;
  virtual std::string Progress(const PromptProgress&) { return ""; }
  virtual std::string End(const ChoiceEnd& end) = 0;
  // Once every choice has ended.
  virtual Json Whole(const Usage& total) = 0;
  // Bytes of the request that the answer repeats, as often as it does so at once.
  virtual std::size_t EchoBytes() const { return 0; }
  // The end of a stream that fails.
  virtual std::string Fail(const Status& status, CancelCause cause) = 0;
  // Returns the text that keeps a silent stream alive; "" where the protocol has nothing for that.
  virtual std::string KeepAlive() { return ": keep-alive\n\n"; }
  // True if that is an event which clients' timers count, so that it should come often.
  virtual bool tells_progress() const { return false; }
};

}  // namespace thermocline::server
