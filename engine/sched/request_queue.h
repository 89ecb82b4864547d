// Requests that wait to be begun, and the places of those that will come: bounded by number and by
// prompt tokens, so that "no" is said before anything is spent.
#pragma once

#include <atomic>
#include <list>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/base/mutex.h"
#include "engine/sched/job.h"

namespace thermocline::sched {

// Thread-safe.
class RequestQueue {
 public:
  struct Limits {
    int requests = 64;
    std::int64_t tokens = 0;  // of prompts; 0 = any number
  };
  explicit RequestQueue(const Limits& limits) : limits_(limits) {}

  // Keeps places for `requests` with prompts of about `tokens` tokens each. ResourceExhausted,
  // for kQueueFull or kPrefillBudget. A tenant of whom nothing waits may come when the others have
  // filled the queue: up to twice the requests, and with any number of tokens.
  Status Reserve(int requests, std::int64_t tokens, const std::string& tenant = "");
  void Unreserve(int requests, std::int64_t tokens, const std::string& tenant = "");
  // Takes a reserved place. The job's number is set here.
  void Push(Job job, std::int64_t reserved_tokens);
  // A client took tokens, or a request was cancelled: one that waits ends at once, on this thread.
  void OnNews(TokenChannel& channel);
  void CancelAll(CancelCause cause);
  // Wait returns at once from now on.
  void Close();

  // The rest is for the decode thread.

  // Calls visit(job) for each that waits, in order of arrival.
  template <typename Visit>
  void ForEach(Visit visit) const {
    const base::MutexLock lock(mutex_);
    for (const Job& job : waiting_) visit(job);
  }
  // Takes job `number` out of the queue: it begins. Nothing if it has ended meanwhile.
  std::optional<Job> Take(std::uint64_t number);
  // A begun job has ended: CancelAll need not know it any more.
  void Forget(const std::shared_ptr<TokenChannel>& channel);
  // Ends those that are late. Cheap while none is.
  void ExpireLate(SteadyClock::time_point now);
  // True if there was news since the last call.
  bool TakeNews() { return news_.exchange(false); }
  // Waits for news, an arrival, the next deadline or `until`.
  void Wait(std::optional<SteadyClock::time_point> until);
  bool closed() const;

  struct Counts {
    int requests = 0;         // that wait
    int reserved = 0;         // places of others
    std::int64_t tokens = 0;  // of both
    int places() const { return requests + reserved; }
  };
  Counts counts() const;
  // True if a request of `tenant` waits or is begun.
  bool Knows(const std::string& tenant) const;
  Limits limits() const;
  void SetLimits(const Limits& limits);

 private:
  using Jobs = std::list<Job>;
  bool HasRoom(int requests, std::int64_t tokens, bool alone) const REQUIRES(mutex_);
  void GiveUpPlaces(const std::string& tenant, int requests) REQUIRES(mutex_);
  Job Extract(Jobs::iterator at) REQUIRES(mutex_);
  void UpdateDeadline() REQUIRES(mutex_);

  mutable base::Mutex mutex_;
  base::Condition changed_;
  Limits limits_ GUARDED_BY(mutex_);
  Jobs waiting_ GUARDED_BY(mutex_);
  int reserved_ GUARDED_BY(mutex_) = 0;         // requests
  std::int64_t tokens_ GUARDED_BY(mutex_) = 0;  // of waiting and reserved requests
  std::unordered_map<std::string, int> places_ GUARDED_BY(mutex_);  // of both, by tenant
  std::uint64_t arrivals_ GUARDED_BY(mutex_) = 0;
  // Of all that have not ended, with their tenants.
  std::unordered_map<std::shared_ptr<TokenChannel>, std::string> live_ GUARDED_BY(mutex_);
  bool closed_ GUARDED_BY(mutex_) = false;
  // Any thread.
  std::atomic<bool> news_{false};
  std::atomic<SteadyClock::rep> next_deadline_{SteadyClock::duration::max().count()};
};

}  // namespace thermocline::sched
