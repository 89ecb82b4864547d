// The budget for compiling one grammar: states, memory and time. Clients send grammars, and small
// ones can require unbounded work.
#pragma once

#include <time.h>

#include <cstddef>

#include "engine/base/interruption.h"
#include "engine/base/status.h"
#include "engine/base/strings.h"

namespace thermocline::grammar {

// The budget of one thread: it counts processor time, so that rejections do not depend on other
// load on the machine.
class Budget {
 public:
  Budget(std::size_t states_max, double seconds, std::size_t bytes_max)
      : states_max_(states_max),
        bytes_max_(bytes_max),
        seconds_(seconds),
        begun_s_(ProcessorSeconds()) {}

  // Called while a structure of `states` states and `bytes` bytes, not yet counted by Hold, grows.
  // InvalidArgument: a limit is exceeded, or the time is used up.
  Status Check(std::size_t states, std::size_t bytes = 0) {
    if (states > states_max_)
      return base::InvalidArgument("the grammar is too large: it needs more than ", states_max_,
                                   " states; make it smaller (counts of a repetition, lengths of "
                                   "strings and alternatives multiply)");
    if (held_ + bytes > bytes_max_)
      return base::InvalidArgument("the grammar is too large: to compile it takes more than ",
                                   base::HumanBytes(bytes_max_),
                                   " (a quarter of what grammar.memory_mib and "
                                   "memory.budget_bytes leave for grammars); make it smaller "
                                   "(counts of a repetition, lengths of strings and alternatives "
                                   "multiply)");
    return ++asked_ % 16 == 0 ? CheckTime() : OkStatus();
  }
  // Called in each round of a fixed-point iteration. InvalidArgument: the time is used up.
  Status CheckTime() const {
    if (base::Interrupted()) return base::Unavailable("nobody waits for the grammar");
    if (!late()) return OkStatus();
    return base::InvalidArgument("the grammar takes longer than ", seconds_,
                                 " s to compile; make it smaller");
  }
  // Counts memory that is held for longer than a step; Check compares it with the limit.
  void Hold(std::size_t bytes) { held_ += bytes; }
  std::size_t held() const { return held_; }
  bool late() const { return ProcessorSeconds() - begun_s_ > seconds_; }
  std::size_t states_max() const { return states_max_; }

 private:
  static double ProcessorSeconds() {
    timespec now{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
  }

  const std::size_t states_max_, bytes_max_;
  const double seconds_, begun_s_;
  unsigned asked_ = 0;
  std::size_t held_ = 0;
};

}  // namespace thermocline::grammar
