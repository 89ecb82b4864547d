// Counters of events while masks are computed. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>

namespace thermocline::grammar {

struct Counters {
  std::atomic<std::int64_t> masks{0}, mask_ns{0}, forced_tokens{0}, forced_accepted_tokens{0};
};

}  // namespace thermocline::grammar
