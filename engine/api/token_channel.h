// The channel that carries one request's tokens from the decode thread to the consumer.
//
// Tokens wait here until they are taken, up to a bound: then the engine pauses the request,
// computes for others, and gives the request up after a time limit (ServingOptions::reader_*).
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "engine/api/request.h"
#include "engine/base/mutex.h"
#include "engine/base/out_of_memory.h"

namespace thermocline {

// Thread-safe: one producer (decode thread), one consumer. Text and ids wait here until taken; the
// two sides swap buffers, so that a consumer which keeps up costs no allocation.
class TokenChannel {
 public:
  // A token and the logarithm of its probability.
  struct Score {
    int token;
    float logprob;
  };
  // The text and tokens since the last TakeUpdate.
  struct Update {
    std::string text;  // whole UTF-8 characters
    std::vector<int> tokens;
    std::vector<std::chrono::steady_clock::time_point> times;  // time at which each was made
    // With Request::logprobs k: for each of `tokens` k + 1 entries, first the token itself, then
    // the k most probable ones, descending.
    std::vector<Score> scores;
    // With Request::prompt_logprobs: the same for the prompt's tokens after the first. Sent once.
    std::vector<Score> prompt_scores;
    // With Request::embed: the vectors of the next texts, normalised to length 1.
    std::vector<std::vector<float>> embeddings;
    // Tokens of the prompt computed so far, including those from the prefix cache, whose number
    // follows; -1 = no news. With Request::progress after every step, otherwise once, at the end of
    // prefill.
    int prompt_done = -1;
    int prompt_cached = 0;
    bool finished = false;
    FinishReason reason = FinishReason::kNone;
    Status error;  // with reason kError
    Usage usage;   // final once finished
  };

  // `on_ready` is called on the decode thread after each push and at the end; it must not block.
  // May be empty.
  explicit TokenChannel(std::function<void()> on_ready, int tokens_max = 0)
      : on_ready_(std::move(on_ready)), tokens_max_(static_cast<std::size_t>(tokens_max)) {
    ReserveBuffers(pending_);
  }
  // Called by TakeUpdate, on the consumer's thread, when there is room again, and by Cancel. Set
  // before another thread knows the channel.
  void SetOnRoom(std::function<void()> on_room) { on_room_ = std::move(on_room); }

  // Reserves an Update's buffers for the output of a step. They are small, because thousands may
  // wait in a queue.
  static void ReserveBuffers(Update& update) {
    update.text.reserve(512);
    update.tokens.reserve(64);
    update.times.reserve(64);
  }

  // Consumer: moves the available data into `update` (cleared first). Returns true if there was
  // any.
  bool TakeUpdate(Update& update) {
    bool was_full, taken;
    {
      const base::MutexLock lock(mutex_);
      was_full = FullLocked();
      taken = TakeUpdateLocked(update);
    }
    if (was_full && on_room_) on_room_();
    return taken;
  }
  // As TakeUpdate, but waits until data is available.
  void WaitForUpdate(Update& update) {
    base::MutexLock lock(mutex_);
    while (!fresh_) ready_.Wait(mutex_);
    const bool was_full = FullLocked();
    TakeUpdateLocked(update);
    lock.Unlock();
    if (was_full && on_room_) on_room_();
  }
  // Any thread: cancels the request. The engine reads this once per step. The first cause is kept.
  void Cancel(CancelCause cause = CancelCause::kDisconnect) {
    CancelCause none = CancelCause::kNone;
    {
      const base::MutexLock lock(mutex_);
      if (cause_.load(std::memory_order_relaxed) == none)
        cancelled_at_ = std::chrono::steady_clock::now();
      cause_.compare_exchange_strong(none, cause, std::memory_order_relaxed);
    }
    if (on_room_) on_room_();
  }
  // True once the engine has started the request.
  bool begun() const { return begun_.load(std::memory_order_relaxed); }
  bool cancelled() const { return cause() != CancelCause::kNone; }
  CancelCause cause() const { return cause_.load(std::memory_order_relaxed); }
  // The time of the first call of Cancel. Requires: cancelled().
  std::chrono::steady_clock::time_point cancelled_at() const {
    const base::MutexLock lock(mutex_);
    return cancelled_at_;
  }
  // True if the maximum number of tokens waits here.
  bool full() const {
    const base::MutexLock lock(mutex_);
    return FullLocked();
  }

  // True once Finish was called: nothing follows the output that waits here.
  bool ended() const {
    const base::MutexLock lock(mutex_);
    return ended_;
  }
  // Bytes that wait here.
  struct Waiting {
    std::size_t text = 0, numbers = 0;  // UTF-8; tokens, scores and vectors
  };
  Waiting waiting() const {
    const base::MutexLock lock(mutex_);
    Waiting bytes = {
        .text = pending_.text.size(),
        .numbers = pending_.tokens.size() * sizeof(int) +
                   (pending_.scores.size() + pending_.prompt_scores.size()) * sizeof(Score)};
    for (const auto& embedding : pending_.embeddings)
      bytes.numbers += embedding.size() * sizeof(float);
    return bytes;
  }

  // Producer.
  void Begin() { begun_.store(true, std::memory_order_relaxed); }
  void Push(int token, const std::string& text, std::span<const Score> scores = {}) {
    {
      const base::MutexLock lock(mutex_);
      pending_.scores.insert(pending_.scores.end(), scores.begin(), scores.end());
      pending_.tokens.push_back(token);
      pending_.times.push_back(std::chrono::steady_clock::now());
      pending_.text += text;
      fresh_ = true;
    }
    Notify();
  }
  // `notify`: notify the consumer at once; otherwise it is sent with the next token.
  void PushProgress(int tokens, int cached, bool notify) {
    {
      const base::MutexLock lock(mutex_);
      pending_.prompt_done = tokens;
      pending_.prompt_cached = cached;
      fresh_ = fresh_ || notify;
    }
    if (notify) Notify();
  }
  void PushPromptScores(std::vector<Score> scores) {
    const base::MutexLock lock(mutex_);
    pending_.prompt_scores = std::move(scores);
    fresh_ = true;
  }
  void PushEmbedding(std::vector<float> embedding) {
    {
      const base::MutexLock lock(mutex_);
      pending_.embeddings.push_back(std::move(embedding));
      fresh_ = true;
    }
    Notify();
  }
  // The first call decides; later calls are ignored.
  void Finish(FinishReason reason, const std::string& text, const Usage& usage, Status error = {}) {
    {
      const base::MutexLock lock(mutex_);
      if (!ended_) {
        pending_.text += text;
        pending_.reason = reason;
        pending_.usage = usage;
        pending_.error = std::move(error);
        pending_.finished = fresh_ = ended_ = true;
      }
    }
    Notify();
  }

 private:
  bool TakeUpdateLocked(Update& update) REQUIRES(mutex_) {
    update.text.clear();
    update.tokens.clear();
    update.times.clear();
    update.scores.clear();
    update.prompt_scores.clear();
    update.embeddings.clear();
    update.prompt_done = -1;
    update.finished = false;
    if (!fresh_) return false;
    std::swap(update, pending_);
    fresh_ = false;
    return true;
  }
  bool FullLocked() const REQUIRES(mutex_) {
    return tokens_max_ > 0 && pending_.tokens.size() >= tokens_max_;
  }
  // The callback must only post.
  void Notify() {
    ready_.NotifyOne();
    if (on_ready_) base::UntilMemory(on_ready_);
  }

  const std::function<void()> on_ready_;
  std::function<void()> on_room_;
  const std::size_t tokens_max_;  // 0 = no limit
  mutable base::Mutex mutex_;
  base::Condition ready_;
  Update pending_ GUARDED_BY(mutex_);
  bool fresh_ GUARDED_BY(mutex_) = false;  // pending_ holds something not taken
  bool ended_ GUARDED_BY(mutex_) = false;
  std::atomic<CancelCause> cause_{CancelCause::kNone};
  std::atomic<bool> begun_{false};
  std::chrono::steady_clock::time_point cancelled_at_ GUARDED_BY(mutex_);
};

}  // namespace thermocline
