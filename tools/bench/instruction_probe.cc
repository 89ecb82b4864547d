#include "tools/bench/instruction_probe.h"

#include <atomic>
#include <chrono>
#include <cstdint>

namespace thermocline::tools {

double MeasureGopPerS(const kernels::OpTable& ops, base::WorkerPool& pool) {
  constexpr int kRounds = 100'000, kItemsPerThread = 16;
  std::atomic<std::int64_t> made = 0;
  const auto begin = std::chrono::steady_clock::now();
  pool.Run(pool.threads() * kItemsPerThread, [&](int, int) { made += ops.dot_peak(kRounds); });
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
  return static_cast<double>(made) / elapsed.count() / 1e9;
}

double ClockGhz() {
  constexpr int kRounds = 200'000, kAdditions = 8;
  std::uint64_t sum = 1;
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < kRounds; ++i) {
    for (int k = 0; k < kAdditions; ++k) {
      sum += static_cast<std::uint64_t>(i);
      asm volatile("" : "+r"(sum));  // lest the additions become one
    }
  }
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
  return kRounds * static_cast<double>(kAdditions) / elapsed.count() / 1e9;
}

}  // namespace thermocline::tools
