// The answer to one request that is made while the connection waits: a complete response, or the
// events of a stream. It is independent of connections.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "server/core/generation.h"
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

  virtual ~Answer() = default;
  // Returns the output since the last call. Long output comes in several pieces: call again when
  // this one is written.
  virtual Output NextOutput() = 0;
  // The complete response, if it is neither a stream nor an error; the answer has ended then.
  virtual HttpResponse FullResponse() = 0;
  // An upper bound of the response's text in bytes; 0 if it is too small for RequestMemory.
  virtual std::size_t whole_bytes_max() const { return 0; }
  // An upper bound of the text of a stream's output that is not returned yet, in bytes, once all of
  // it is made; nullopt before.
  virtual std::optional<std::size_t> rest_bytes_max() const { return std::nullopt; }
  // True once NextOutput or FullResponse has returned the last output.
  virtual bool ended() const = 0;
  // The first events of a stream, before anything is known; "" for an answer that is not streamed.
  virtual std::string Open() = 0;
  // Returns the bytes that keep a silent connection alive; "" for an answer that has none.
  virtual std::string KeepAlive() { return {}; }
  // True if KeepAlive reports the progress of prefill; then it is due every second.
  virtual bool tells_progress() const { return false; }
  // The content type of a stream.
  virtual const char* content_type() const = 0;
  // nullptr for an answer without tokens.
  virtual const server::Generation* generation() const { return nullptr; }
  // `bytes`: counts those that the client has taken, as Generation::SetReadCounter.
  virtual void SetReadCounter(const std::shared_ptr<const std::atomic<std::int64_t>>& /*bytes*/) {}
  // True if the work was cancelled, and the rest of the output is to be taken at once.
  virtual bool given_up() const { return false; }
  // The client has disconnected: cancels the work that has not ended.
  virtual void Cancel(CancelCause cause) = 0;
};

// Starts work and returns its answer, or why it cannot begin. `on_ready` is called on any thread
// when the answer has output.
using AnswerStarter =
    std::function<Result<std::unique_ptr<Answer>>(std::function<void()> on_ready)>;

}  // namespace thermocline::http
