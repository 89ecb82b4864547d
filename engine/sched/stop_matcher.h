// Finds stop strings in text that comes in pieces, and holds back what may become one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace thermocline::sched {

// One per sequence; thread-compatible.
class StopMatcher {
 public:
  explicit StopMatcher(const std::vector<std::string>& stops) : stops_(stops) {
    held_.reserve(1024);
  }

  // Adds `text`; appends to `out` what is certainly not part of a stop string. True once a stop
  // string is complete: `out` then ends right before it, and no more may be added.
  bool Push(std::string_view text, std::string& out);
  // The index of the stop string that is complete; -1: none is.
  int found() const { return found_; }
  // Appends what was held back: the sequence ended without a stop string.
  void Finish(std::string& out) {
    out += held_;
    held_.clear();
  }

 private:
  const std::vector<std::string>& stops_;
  std::string held_;
  int found_ = -1;
};

}  // namespace thermocline::sched
