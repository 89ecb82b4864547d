#include "loadtest/measure/timeline.h"

#include <algorithm>

#include "engine/base/ratio.h"

namespace thermocline::loadtest {

Timeline::Bin& Timeline::At(double time) {
  const double place = std::max(time, 0.0);
  while (place / bin_s_ >= static_cast<double>(kBinsMax)) {
    for (std::size_t i = 0; i < bins_.size(); i += 2) {
      const Bin a = bins_[i], b = i + 1 < bins_.size() ? bins_[i + 1] : Bin{};
      bins_[i / 2] = {.tokens = a.tokens + b.tokens,
                      .started = a.started + b.started,
                      .ok = a.ok + b.ok,
                      .failed = a.failed + b.failed,
                      .in_flight = std::max(a.in_flight, b.in_flight),
                      .rss_bytes = b.rss_bytes > 0 ? b.rss_bytes : a.rss_bytes};
    }
    bins_.resize((bins_.size() + 1) / 2);
    bin_s_ *= 2;
  }
  const auto index = static_cast<std::size_t>(place / bin_s_);
  if (index >= bins_.size()) bins_.resize(index + 1);
  return bins_[index];
}

void Timeline::Add(const Answer& answer) {
  At(answer.t_sent).started += 1;
  Bin& end = At(answer.t_last);
  if (answer.outcome == Outcome::kOk || answer.outcome == Outcome::kRefused) {
    end.ok += 1;
  } else if (answer.outcome != Outcome::kCancelled) {
    end.failed += 1;
  }
  if (answer.t_chunks.empty()) return;
  // A chunk may hold several tokens, so the answer's tokens are spread evenly over its chunks.
  const double tokens = base::Ratio(answer.tokens(), answer.t_chunks.size());
  for (const double time : answer.t_chunks) At(time).tokens += tokens;
}

void Timeline::SetInFlight(double now, int in_flight) {
  Bin& bin = At(now);
  bin.in_flight = std::max(bin.in_flight, static_cast<double>(in_flight));
}

void Timeline::SetMemory(double now, double rss_bytes) { At(now).rss_bytes = rss_bytes; }

}  // namespace thermocline::loadtest
