// A request in the queue.
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
  std::shared_ptr<TokenChannel> channel;  // shared with the consumer, which may disconnect first
  SteadyClock::time_point submitted;
  std::uint64_t number = 0;  // set by the queue, in order of arrival
};

// True once the deadline has passed.
inline bool IsLate(const Job& job, SteadyClock::time_point now) {
  return job.request.deadline.has_value() && now >= *job.request.deadline;
}

// Returns the error of a request that is late: DeadlineExceeded, with the phase it was in. `read`:
// tokens of its prompt that were prefilled.
Status LateStatus(const Job& job, const Usage& usage, std::size_t read, bool waited_for_flash);

// Ends a job that was cancelled or is late, with the usage so far and the rest of its text.
void FinishEarly(Job& job, Usage usage, const std::string& rest, Status error);

}  // namespace thermocline::sched
