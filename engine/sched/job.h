// A request on its way through the queue.
#pragma once

#include <chrono>
#include <memory>

#include "engine/api/token_channel.h"

namespace thermocline::sched {

using SteadyClock = std::chrono::steady_clock;

inline double Seconds(SteadyClock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

struct Job {
  Request request;
  std::shared_ptr<TokenChannel> channel;  // shared with the consumer, who may leave first
  SteadyClock::time_point submitted;
  std::uint64_t number = 0;  // the queue's: grows with each arrival
};

// True once the deadline has passed.
inline bool IsLate(const Job& job, SteadyClock::time_point now) {
  return job.request.deadline.has_value() && now >= *job.request.deadline;
}

// The refusal of a request that is late: DeadlineExceeded with what it was doing. `read`: tokens of
// its prompt.
Status LateStatus(const Job& job, const Usage& usage, std::size_t read, bool waited_for_flash);

// Ends a job that was cancelled or is late, with what `usage` holds so far and the rest of its
// text.
void FinishEarly(Job& job, Usage usage, const std::string& rest, Status error);

}  // namespace thermocline::sched
