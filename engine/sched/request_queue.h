// The queue of requests that have not begun, with reservations for requests still being prepared.
// Requests and prompt tokens are bounded, so that a request is rejected before any work is done.
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

  // Reserves places for `requests` requests with prompts of about `tokens` tokens each. Returns
  // ResourceExhausted, with kQueueFull or kPrefillBudget. A tenant without waiting requests is
  // admitted to a full queue: up to twice the requests, and with any number of tokens.
  Status Reserve(int requests, std::int64_t tokens, const std::string& tenant = "");
  void Unreserve(int requests, std::int64_t tokens, const std::string& tenant = "");
  // Converts a reserved place into a waiting job. Sets the job's number.
  void Push(Job job, std::int64_t reserved_tokens);
  // Called when a client took tokens or a request was cancelled. A waiting request that was
  // cancelled ends at once, on this thread.
  void NotifyScheduler(TokenChannel& channel);
  void CancelAll(CancelCause cause);
  // Makes every Wait return at once from now on.
  void Close();

  // The functions below are for the decode thread.

  // Calls visit(job) for each waiting job, in order of arrival.
  template <typename Visit>
  void ForEach(Visit visit) const {
    const base::MutexLock lock(mutex_);
    for (const Job& job : waiting_) visit(job);
  }
  // Removes job `number` from the queue, to begin it. Empty if it has ended meanwhile.
  std::optional<Job> Pop(std::uint64_t number);
  // Called when a begun job has ended, so that CancelAll no longer cancels it.
  void RemoveChannel(const std::shared_ptr<TokenChannel>& channel);
  // Ends the waiting jobs whose deadline has passed. Cheap while there are none.
  void ExpireLate(SteadyClock::time_point now);
  // Returns true if NotifyScheduler, CancelAll or an arrival set the notification since the last
  // call.
  bool TakeNotification() { return notified_.exchange(false); }
  // Waits for a notification, an arrival, the next deadline or `until`.
  void Wait(std::optional<SteadyClock::time_point> until);
  bool closed() const;

  struct Counts {
    int requests = 0;         // waiting
    int reserved = 0;         // reserved places
    std::int64_t tokens = 0;  // prompt tokens of both
    int places() const { return requests + reserved; }
  };
  Counts counts() const;
  // Returns true if a request of `tenant` waits or has begun.
  bool HasTenant(const std::string& tenant) const;
  Limits limits() const;
  void SetLimits(const Limits& limits);

 private:
  using Jobs = std::list<Job>;
  bool HasRoom(int requests, std::int64_t tokens, bool alone) const REQUIRES(mutex_);
  void ReleasePlaces(const std::string& tenant, int requests) REQUIRES(mutex_);
  Job Extract(Jobs::iterator at) REQUIRES(mutex_);
  void UpdateDeadline() REQUIRES(mutex_);

  mutable base::Mutex mutex_;
  base::Condition changed_;
  Limits limits_ GUARDED_BY(mutex_);
  Jobs waiting_ GUARDED_BY(mutex_);
  int reserved_ GUARDED_BY(mutex_) = 0;         // requests
  std::int64_t tokens_ GUARDED_BY(mutex_) = 0;  // of waiting and reserved requests
  std::unordered_map<std::string, int> places_
      GUARDED_BY(mutex_);  // waiting and reserved, by tenant
  std::uint64_t arrivals_ GUARDED_BY(mutex_) = 0;
  // The channels of all requests that have not ended, with their tenants.
  std::unordered_map<std::shared_ptr<TokenChannel>, std::string> live_ GUARDED_BY(mutex_);
  bool closed_ GUARDED_BY(mutex_) = false;
  // The members below are for any thread.
  std::atomic<bool> notified_{false};
  std::atomic<SteadyClock::rep> next_deadline_{SteadyClock::duration::max().count()};
};

}  // namespace thermocline::sched
