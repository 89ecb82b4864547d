// Runs items in order, on several threads, for a limited time.
#pragma once

#include <atomic>

#include "engine/base/stopwatch.h"
#include "engine/base/worker_pool.h"

namespace thermocline::sched {

// Calls `body` with 0, 1, ... below `items` until `seconds` have passed, and with 0 in any case.
// Returns the number of calls, all of which have ended.
template <typename Body>
int RunFor(base::WorkerPool& pool, int items, double seconds, const Body& body) {
  const base::Stopwatch begun;
  std::atomic<int> next{0};
  pool.Run(items, [&](int item, int) {
    if (item == 0 || begun.Seconds() < seconds) body(next.fetch_add(1));
  });
  return next;
}

}  // namespace thermocline::sched
