// A status line on stderr for work of minutes to hours, shown only on a terminal: progress, current
// step, and remaining time.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

namespace thermocline::tools {

class EtaBar {
 public:
  EtaBar();
  ~EtaBar() { Clear(); }
  // `share`: the completed share; `what`: the current step. Printed at most twice a second.
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
