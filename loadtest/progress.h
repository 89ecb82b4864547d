// The line of live figures on stderr; only a terminal gets it.
#pragma once

#include <string>

#include "loadtest/driver.h"
#include "loadtest/recorder.h"

namespace thermocline::loadtest {

class Progress {
 public:
  Progress();
  ~Progress() { Clear(); }
  // `label`: of the run; `end_s`: when it ends at the latest.
  void Show(const std::string& label, double end_s, const Pace& pace, const Pulse& pulse,
            const Recorder& recorder);
  void Clear();

 private:
  const bool terminal_;
  bool shown_ = false;
  double last_s_ = 0;
  std::uint64_t last_chunks_ = 0;
};

}  // namespace thermocline::loadtest
