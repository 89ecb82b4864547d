// What making one grammar may cost: states, memory and time. Clients send grammars, and small ones
// can ask for endless work.
#pragma once

#include <chrono>
#include <cstddef>

#include "engine/base/status.h"

namespace thermocline::grammar {

// Thread-compatible.
class Budget {
 public:
  Budget(std::size_t states_max, double seconds)
      : states_max_(states_max),
        seconds_(seconds),
        deadline_(std::chrono::steady_clock::now() +
                  std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                      std::chrono::duration<double>(seconds))) {}

  // Asked while something of `states` states and `bytes`, which Hold does not know yet, grows.
  // InvalidArgument: more than there may be, or the time is over.
  Status Check(std::size_t states, std::size_t bytes = 0) {
    if (states > states_max_)
      return base::InvalidArgument("the grammar is too large: it needs more than ", states_max_,
                                   " states; make it smaller (counts of a repetition, lengths of "
                                   "strings and alternatives multiply)");
    if (held_ + bytes > kBytesMax)
      return base::InvalidArgument("the grammar is too large: to compile it takes more than ",
                                   kBytesMax >> 20,
                                   " MiB; make it smaller (counts of a repetition, lengths of "
                                   "strings and alternatives multiply)");
    return ++asked_ % 64 == 0 ? CheckTime() : OkStatus();
  }
  // Asked in each round of what goes on until nothing changes, and before steps that may be long.
  // InvalidArgument: the time is over.
  Status CheckTime() const {
    if (!late()) return OkStatus();
    return base::InvalidArgument("the grammar takes longer than ", seconds_,
                                 " s to compile; make it smaller");
  }
  // Counts what is held for longer than a step; Check says whether it is too much.
  void Hold(std::size_t bytes) { held_ += bytes; }
  std::size_t held() const { return held_; }
  bool late() const { return std::chrono::steady_clock::now() > deadline_; }
  std::size_t states_max() const { return states_max_; }

 private:
  static constexpr std::size_t kBytesMax = 64 << 20;

  const std::size_t states_max_;
  const double seconds_;
  const std::chrono::steady_clock::time_point deadline_;
  unsigned asked_ = 0;
  std::size_t held_ = 0;
};

}  // namespace thermocline::grammar
