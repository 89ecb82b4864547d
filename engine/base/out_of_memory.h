// Handling of memory exhaustion: turn it into a Status, or wait for memory.
#pragma once

#include <chrono>
#include <new>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "engine/base/status.h"

namespace thermocline::base {

// Returns the Status or Result of `work`; Unavailable, naming `doing`, if it runs out of memory or
// threads.
template <typename Work>
auto OrNoMemory(std::string_view doing, Work&& work) -> decltype(work()) {
  try {
    return std::forward<Work>(work)();
  } catch (const std::bad_alloc&) {
    return Unavailable("this machine has no memory left for ", doing);
  } catch (const std::system_error& error) {
    return Unavailable("this machine has no threads left for ", doing, ": ", error.what());
  }
}

// Repeats `work` until there is memory for it. For work that must not be lost, such as notifying a
// waiting thread.
template <typename Work>
void UntilMemory(const Work& work) {
  for (bool done = false; !done;) {
    try {
      work();
      done = true;
    } catch (const std::bad_alloc&) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
}

}  // namespace thermocline::base
