// One client's generation in any protocol: its choices, their tokens and their usage. HTTP and gRPC
// format its output.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/index.h"
#include "engine/base/mutex.h"
#include "engine/engine.h"

namespace thermocline::server {

class Service;

// Returns the error of a choice that ended with kError or kCancelled. Requires: it ended so.
Status FailureOf(const TokenChannel::Update& update);
// The error of an answer that was given up because its client did not read it.
Status NotRead();
// The error of a request that has taken all the time it may.
Status TimeIsOver();
// The error of work that is unfinished when the daemon stops.
Status ShuttingDown();
// The error of a connection beyond a key's limit.
Status TooManyConnections(int connections_max);
// The status of a request whose client disconnected.
Status ClientGone();

inline constexpr int kChoicesMax = 64;  // of all prompts together

// A client's request as requests of the engine.
struct EncodedRequest {
  std::string id;                 // the request's x-request-id, by which it can be cancelled
  std::vector<Request> requests;  // one per prompt
  int choices = 1;                // per prompt; every choice but the first has its own seed
  std::chrono::steady_clock::time_point arrived;
};

// Thread-safe: the engine's thread calls `on_ready`, which only posts; Cancel may be called from
// any thread, the other methods from the client's strand. Lives until every choice has ended, even
// after the client disconnected, so that its usage is counted.
class Generation : public std::enable_shared_from_this<Generation> {
 public:
  // Submits every choice. Errors as Engine::Submit; then no choice runs. Uses the queue places of
  // `admission`, if it has any.
  static Result<std::shared_ptr<Generation>> Start(Service& service, const EncodedRequest& request,
                                                   Engine::Admission* admission,
                                                   std::function<void()> on_ready);
  ~Generation();

  const std::string& id() const { return id_; }
  const std::string& tenant() const { return tenant_; }
  std::chrono::steady_clock::time_point arrived() const { return arrived_; }
  int choices() const { return base::IntSize(choices_); }
  // Tokens taken so far, of all choices.
  std::int64_t tokens() const { return tokens_.load(std::memory_order_relaxed); }
  // Tokens of all prompts, each prompt counted once.
  std::int64_t prompt_tokens() const { return prompt_tokens_; }
  // Takes the output of choice `index` % choices of prompt `index` / choices since the last call;
  // false if there is no new output. Counts it in the metrics. The engine waits for a client that
  // takes nothing, see TokenChannel.
  bool TakeUpdate(int index, TokenChannel::Update& update);
  // True once the engine has started one of the choices.
  bool begun() const;
  // The bytes that are to be taken, once the engine has ended every choice; nullopt before.
  std::optional<TokenChannel::Waiting> rest() const;
  // True once the end of every choice has been taken.
  bool finished() const { return finished_ == choices(); }
  // True if it was cancelled because its client does not read.
  bool given_up() const;
  // `bytes`: counts those of the answer that the client has taken.
  void SetReadCounter(std::shared_ptr<const std::atomic<std::int64_t>> bytes);
  // Called about every second while others wait for the memory of its model: gives it up, as a slow
  // reader's, if the engine has waited for its client, or ended before it, at all calls for
  // `patience` and a second for each 64 KiB that the client took. Then `on_ready` is called.
  void GiveUpUnread(std::chrono::steady_clock::duration patience);
  // Cancels the work. After kDisconnect, kDeadline, kSlowReader or kOtherChoice no client reads the
  // rest, so `on_ready` is not called and no output is taken any more. After other causes every
  // choice still ends, with FinishReason::kCancelled.
  void Cancel(CancelCause cause);

 private:
  struct Choice {
    std::shared_ptr<TokenChannel> channel;
    std::optional<std::chrono::steady_clock::time_point> last_token_at;
  };
  Generation(Service& service, const EncodedRequest& request, std::function<void()> on_ready);
  void OnReady(std::size_t index);
  bool TakeUpdateLocked(Choice& choice, TokenChannel::Update& update) REQUIRES(take_mutex_);
  void Observe(Choice& choice, const TokenChannel::Update& update) REQUIRES(take_mutex_);
  // Energy from the first step of any ended choice to the last step of this one; 0 = unknown.
  double Joules(const Usage& usage) REQUIRES(take_mutex_);

  Service& service_;
  const std::string id_, tenant_;
  const std::chrono::steady_clock::time_point arrived_;
  std::function<void()> on_ready_ GUARDED_BY(mutex_);
  std::vector<Choice> choices_;
  std::optional<std::chrono::steady_clock::time_point> begun_at_ GUARDED_BY(take_mutex_);
  // Since when GiveUpUnread has found it waiting for its client, and when it did last.
  std::chrono::steady_clock::time_point behind_since_ GUARDED_BY(take_mutex_);
  std::chrono::steady_clock::time_point behind_at_ GUARDED_BY(take_mutex_);
  std::int64_t read_before_ GUARDED_BY(take_mutex_) = 0;  // at behind_since_
  std::shared_ptr<const std::atomic<std::int64_t>> read_bytes_ GUARDED_BY(take_mutex_);
  base::Mutex take_mutex_;     // serializes TakeUpdate and its counting; acquired before mutex_
  mutable base::Mutex mutex_;  // guards on_ready_, abandoned_ and the channels
  CancelCause cause_ GUARDED_BY(mutex_) = CancelCause::kNone;
  // Its client disconnected, so that no output is taken.
  bool abandoned_ GUARDED_BY(mutex_) = false;
  std::atomic<int> finished_{0};
  std::atomic<std::int64_t> tokens_{0};
  std::int64_t prompt_tokens_ = 0;
};

}  // namespace thermocline::server
