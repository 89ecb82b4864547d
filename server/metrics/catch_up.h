// Counters that the engine keeps and a scrape copies.
#pragma once

#include <prometheus/counter.h>

#include <algorithm>

namespace thermocline::server {

// Never goes back: a total that falls waits. Not for two threads at once.
template <typename Number>
void CatchUp(prometheus::Counter& counter, Number total) {
  counter.Increment(std::max(0.0, static_cast<double>(total) - counter.Value()));
}

}  // namespace thermocline::server
