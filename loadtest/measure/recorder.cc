#include "loadtest/measure/recorder.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace thermocline::loadtest {
namespace {

constexpr std::size_t kErrorsMax = 30, kDotsMax = 3000;

}  // namespace

Result<std::unique_ptr<RawLog>> RawLog::Create(const std::string& path) {
  std::FILE* file = std::fopen(path.c_str(), "w");
  if (file == nullptr)
    return base::Unavailable("--raw ", path, ": it cannot be written: ", std::strerror(errno));
  std::setvbuf(file, nullptr, _IOLBF, 1u << 16);  // line-buffered, so that lines are complete
  return std::unique_ptr<RawLog>(new RawLog(path, file));
}

RawLog::~RawLog() {
  if (file_ != nullptr) std::fclose(file_);
}

void RawLog::Write(const Answer& answer, const std::string& label) {
  Json json = AnswerJson(answer);
  if (!label.empty()) json.Set("run", label);
  const std::string line = json.Dump() + "\n";
  failed_ = failed_ || std::fwrite(line.data(), 1, line.size(), file_) != line.size();
}

Status RawLog::Close() {
  failed_ = std::fclose(std::exchange(file_, nullptr)) != 0 || failed_;
  if (failed_) return base::Unavailable("--raw ", path_, ": lines of it could not be written");
  return OkStatus();
}

void Recorder::Add(const Answer& answer) {
  const Latencies latencies = LatenciesOf(answer, open_loop_);
  const bool good = limits_.Holds(answer, latencies);
  first_ = all_.requests == 0 ? answer.t_scheduled : std::min(first_, answer.t_scheduled);
  last_ = std::max(last_, answer.t_last);
  all_.Add(answer, latencies, good);
  kinds_[answer.kind].Add(answer, latencies, good);
  timeline_.Add(answer);
  AddDot(answer, latencies);
  if (!answer.error.empty()) {
    const bool known = errors_.contains(answer.error) || errors_.size() < kErrorsMax;
    ++errors_[known ? answer.error : "others"];
  }
  if (raw_ != nullptr) raw_->Write(answer, label_);
}

void Recorder::AddDot(const Answer& answer, const Latencies& latencies) {
  if (answer.outcome != Outcome::kOk || !latencies.ttft.has_value()) return;
  const AnswerDot dot{
      .t_scheduled = answer.t_scheduled, .ttft = *latencies.ttft, .e2e = latencies.e2e};
  ++dots_seen_;
  if (dots_.size() < kDotsMax) {
    dots_.push_back(dot);
  } else if (const std::uint64_t place = random_.Below(dots_seen_); place < kDotsMax) {
    dots_[place] = dot;
  }
}

}  // namespace thermocline::loadtest
