// The progress line on stderr, shown only on a terminal.
#pragma once

#include <string>

#include "loadtest/measure/recorder.h"
#include "loadtest/run/driver.h"

namespace thermocline::loadtest {

class Progress {
 public:
  Progress();
  ~Progress() { Clear(); }
  // `label`: the run's. The run ends after `requests`, or at `end_s`.
  void Show(const std::string& label, std::optional<std::uint64_t> requests, double end_s,
            const Pace& pace, const ChunkCounter& chunk_counter, const Recorder& recorder);
  void Clear();

 private:
  const bool terminal_;
  bool shown_ = false;
  double last_s_ = 0;
  std::uint64_t last_chunks_ = 0;
};

}  // namespace thermocline::loadtest
