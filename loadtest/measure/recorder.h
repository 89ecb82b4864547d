// Records the answers: statistics in bounded memory, and each answer in the raw log.
#pragma once

#include <cstdio>
#include <map>
#include <memory>
#include <string>

#include "loadtest/measure/figures.h"
#include "loadtest/measure/slo.h"
#include "loadtest/measure/timeline.h"

namespace thermocline::loadtest {

// A JSON line for each answer, written as it arrives.
class RawLog {
 public:
  static Result<std::unique_ptr<RawLog>> Create(const std::string& path);
  ~RawLog();
  RawLog(const RawLog&) = delete;
  RawLog& operator=(const RawLog&) = delete;
  // `label`: the run's, if there are several.
  void Write(const Answer& answer, const std::string& label);
  // Unavailable: a line could not be written.
  Status Close();

 private:
  RawLog(std::string path, std::FILE* file) : path_(std::move(path)), file_(file) {}
  const std::string path_;
  std::FILE* file_;
  bool failed_ = false;
};

// A dot of a plot.
struct AnswerDot {
  double t_scheduled, ttft, e2e;
};

class Recorder {
 public:
  // `raw`: borrowed, or nullptr.
  Recorder(bool open_loop, GoodLimits limits, RawLog* raw, std::string label)
      : open_loop_(open_loop), limits_(std::move(limits)), raw_(raw), label_(std::move(label)) {}

  void Add(const Answer& answer);
  Timeline& timeline() { return timeline_; }

  const Figures& all() const { return all_; }
  const std::map<std::string, Figures>& kinds() const { return kinds_; }
  const std::map<std::string, std::int64_t>& errors() const { return errors_; }
  const Timeline& timeline() const { return timeline_; }
  const std::vector<AnswerDot>& dots() const { return dots_; }
  const GoodLimits& limits() const { return limits_; }
  // The time from the first scheduled request to the last end.
  double elapsed_s() const { return all_.requests == 0 ? 0 : last_ - first_; }

 private:
  void AddDot(const Answer& answer, const Latencies& latencies);

  const bool open_loop_;
  const GoodLimits limits_;
  RawLog* const raw_;
  const std::string label_;
  Figures all_;
  std::map<std::string, Figures> kinds_;
  std::map<std::string, std::int64_t> errors_;  // message -> count; the first kErrorsMax
  Timeline timeline_;
  std::vector<AnswerDot> dots_;  // a uniform sample
  std::uint64_t dots_seen_ = 0;
  Random random_{0xD075};
  double first_ = 0, last_ = 0;
};

}  // namespace thermocline::loadtest
