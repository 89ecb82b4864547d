// One client's generation, whatever protocol it came by: its choices, their tokens, their
// figures. HTTP and gRPC write what it gives.
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

// Why what a choice ended with is no whole answer. Requires: it ended with kError or kCancelled.
Status FailureOf(const TokenChannel::Update& update);
// The refusal of work that the daemon's end leaves undone.
Status ShuttingDown();
// The caller's key has as many connections as it may have.
Status TooManyConnections(int connections_max);
// The status of a request whose client left.
Status ClientGone();

inline constexpr int kChoicesMax = 64;  // of all prompts together

// The generations of one request, for every protocol.
struct GenerationRequest {
  std::string id;                 // by which it can be cancelled: the request's x-request-id
  std::vector<Request> requests;  // one for each prompt
  int choices = 1;  // of each prompt; those behind the first draw with seeds of their own
  std::chrono::steady_clock::time_point arrived;
};

// Thread-safe: `on_ready` comes from the engine's thread and only posts; the other calls come from
// the client's strand, Cancel from anywhere. Lives until every choice has ended, also when nobody
// asks for it any more: what it has to count is counted then.
class Generation : public std::enable_shared_from_this<Generation> {
 public:
  // Submits every choice. Errors as Engine::Submit; then none runs. The choices' places are taken
  // from `admission`, if there are any.
  static Result<std::shared_ptr<Generation>> Start(Service& service,
                                                   const GenerationRequest& request,
                                                   Engine::Admission* admission,
                                                   std::function<void()> on_ready);
  ~Generation();

  const std::string& id() const { return id_; }
  const std::string& tenant() const { return tenant_; }
  std::chrono::steady_clock::time_point arrived() const { return arrived_; }
  int choices() const { return base::IntSize(choices_); }
  // Tokens of all choices that were taken so far.
  std::int64_t tokens() const { return tokens_.load(std::memory_order_relaxed); }
  // The tokens of all prompts, each counted once.
  std::int64_t prompt_tokens() const { return prompt_tokens_; }
  // Takes the output of choice `index` % choices of prompt `index` / choices since the last call;
  // false: nothing. Counts it in the metrics. A client that takes nothing more is waited for, see
  // TokenChannel.
  bool Take(int index, TokenChannel::Update& update);
  // True once the engine has begun with one of its choices.
  bool begun() const;
  // True once the end of every choice was taken.
  bool finished() const { return finished_ == choices(); }
  // True if the engine has given it up because its client does not read.
  bool given_up() const;
  // The work is not wanted any more. With kDisconnect, kDeadline, kSlowReader or kOtherChoice, when
  // nobody is there to be told, nothing is called or taken any more; else every choice still ends,
  // with FinishReason::kCancelled.
  void Cancel(CancelCause cause);

 private:
  struct Choice {
    std::shared_ptr<TokenChannel> channel;
    std::optional<std::chrono::steady_clock::time_point> last_token_at;
  };
  Generation(Service& service, const GenerationRequest& request, std::function<void()> on_ready);
  void OnReady(std::size_t index);
  bool TakeLocked(Choice& choice, TokenChannel::Update& update) REQUIRES(take_mutex_);
  void Observe(Choice& choice, const TokenChannel::Update& update) REQUIRES(take_mutex_);
  // From the first step of any choice that has ended to the last one of this; 0: not known.
  double Joules(const Usage& usage) REQUIRES(take_mutex_);

  Service& service_;
  const std::string id_, tenant_;
  const std::chrono::steady_clock::time_point arrived_;
  std::function<void()> on_ready_ GUARDED_BY(mutex_);
  std::vector<Choice> choices_;
  std::optional<std::chrono::steady_clock::time_point> begun_at_ GUARDED_BY(take_mutex_);
  base::Mutex take_mutex_;     // one Take and its counting at a time; taken before mutex_
  mutable base::Mutex mutex_;  // of on_ready_, abandoned_ and the channels
  CancelCause cause_ GUARDED_BY(mutex_) = CancelCause::kNone;
  bool abandoned_ GUARDED_BY(mutex_) = false;  // its client left: nobody takes
  std::atomic<int> finished_{0};
  std::atomic<std::int64_t> tokens_{0};
  std::int64_t prompt_tokens_ = 0;
};

}  // namespace thermocline::server
