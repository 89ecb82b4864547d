// A line on stderr for work of minutes to hours, only if that is a terminal: how far it is, what it
// does, and when it will be done.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

namespace thermocline::tools {

class EtaBar {
 public:
  EtaBar();
  ~EtaBar() { Clear(); }
  // `share` done of all, and what is being done. Printed twice a second at most.
  void Show(double share, std::string_view what);
  void Clear();

 private:
  using Clock = std::chrono::steady_clock;
  bool terminal_;
  bool shown_ = false;
  Clock::time_point begin_ = Clock::now(), printed_{};
};

// "2 h 05 min", "3 min 20 s", "8 s".
std::string HumanDuration(double seconds);

}  // namespace thermocline::tools
