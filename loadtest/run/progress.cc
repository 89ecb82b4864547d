#include "loadtest/run/progress.h"

#include <unistd.h>

#include <cmath>
#include <cstdio>

#include "loadtest/report/run_report.h"

namespace thermocline::loadtest {

Progress::Progress() : terminal_(::isatty(STDERR_FILENO) != 0) {}

void Progress::Show(const std::string& label, std::optional<std::uint64_t> requests, double end_s,
                    const Pace& pace, const ChunkCounter& chunk_counter, const Recorder& recorder) {
  if (!terminal_) return;
  const double seconds = pace.now_s - last_s_;
  const std::uint64_t chunks = chunk_counter.chunks;
  const bool same_run = seconds > 0 && chunks >= last_chunks_;
  const double chunks_per_s = same_run ? static_cast<double>(chunks - last_chunks_) / seconds : 0;
  last_s_ = pace.now_s;
  last_chunks_ = chunks;
  const Figures& all = recorder.all();
  const std::string goal = requests.has_value()
                               ? StrCat(pace.started, "/", *requests, " requests")
                               : StrCat(std::lround(pace.now_s), "/", std::lround(end_s), " s");
  std::fprintf(stderr,
               "\r\033[K%s%s  %d in flight, %zu waiting, %lld ok, %lld failed  %.0f "
               "chunks/s  TTFT p50 %s  ITL p99 %s",
               label.empty() ? "" : (label + "  ").c_str(), goal.c_str(), pace.in_flight,
               pace.waiting, static_cast<long long>(all.count(Outcome::kOk)),
               static_cast<long long>(all.failed()), chunks_per_s,
               HumanSeconds(all.latency[kTtft].Percentile(50)).c_str(),
               HumanSeconds(all.latency[kItl].Percentile(99)).c_str());
  shown_ = true;
}

void Progress::Clear() {
  if (shown_) std::fprintf(stderr, "\r\033[K");
  shown_ = false;
}

}  // namespace thermocline::loadtest
