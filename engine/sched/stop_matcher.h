// Finds stop strings in text that arrives in pieces, and withholds text that may begin one.
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

  // Adds `text`; appends to `out` the text that is certainly not part of a stop string. Returns
  // true once a stop string is complete: `out` then ends right before it, and no more may be added.
  bool Push(std::string_view text, std::string& out);
  // Returns the index of the complete stop string; -1: none.
  int found() const { return found_; }
  // Appends the withheld text. Called when the sequence ended without a stop string.
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
