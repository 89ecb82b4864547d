// The decode thread's step counters. Writing takes no lock, and a reader never makes the writer
// wait.
#pragma once

#include <algorithm>
#include <atomic>

#include "engine/api/step_stats.h"

namespace thermocline::sched {

// Counts values >= 0. One thread adds, any thread reads: each number only grows, but a reader may
// see a value's bucket before its part of the sum.
template <const auto& kBorders>
class StepHistogram {
 public:
  void Add(double value) {
    const auto* bucket = std::lower_bound(kBorders.begin(), kBorders.end(), value);
    Grow(counts_[bucket - kBorders.begin()], std::int64_t{1});
    Grow(sum_, value);
  }
  BucketCounts<kBorders.size()> Read() const {
    BucketCounts<kBorders.size()> out;
    for (std::size_t i = 0; i < counts_.size(); ++i)
      out.counts[i] = counts_[i].load(std::memory_order_relaxed);
    out.sum = sum_.load(std::memory_order_relaxed);
    return out;
  }

 private:
  // With one writer, no update is lost between the load and the store.
  template <typename Number>
  static void Grow(std::atomic<Number>& number, Number by) {
    number.store(number.load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
  }

  std::array<std::atomic<std::int64_t>, kBorders.size() + 1> counts_ = {};
  std::atomic<double> sum_{0};
};

// Any thread may read; the decode thread writes.
struct StepCounters {
  using Seconds = StepHistogram<kStepSecondsBorders>;
  Seconds prefill, decode, verify;
  StepHistogram<kStepTokensBorders> tokens;
  std::atomic<std::int64_t> recomputed_tokens{0};
  // Steps that sequences shared, and their tokens: answer tokens, and prompt tokens.
  std::atomic<std::int64_t> shared_steps{0}, shared_decode_tokens{0}, shared_prefill_tokens{0};
  std::atomic<double> last_end_s{0};  // as StepStats

  StepStats Read() const {
    return {.prefill = prefill.Read(),
            .decode = decode.Read(),
            .verify = verify.Read(),
            .tokens = tokens.Read(),
            .shared_steps = shared_steps.load(std::memory_order_relaxed),
            .shared_decode_tokens = shared_decode_tokens.load(std::memory_order_relaxed),
            .shared_prefill_tokens = shared_prefill_tokens.load(std::memory_order_relaxed),
            .last_end_s = last_end_s.load(std::memory_order_relaxed)};
  }
};

}  // namespace thermocline::sched
