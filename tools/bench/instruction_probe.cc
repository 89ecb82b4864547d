#include "tools/bench/instruction_probe.h"

#include <atomic>
#include <chrono>

namespace thermocline::tools {

double MeasureGopPerS(const kernels::OpTable& ops, base::WorkerPool& pool) {
  constexpr int kRounds = 100'000, kItemsPerThread = 16;
  std::atomic<std::int64_t> made = 0;
  const auto begin = std::chrono::steady_clock::now();
  pool.Run(pool.threads() * kItemsPerThread, [&](int, int) { made += ops.dot_peak(kRounds); });
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
  return static_cast<double>(made) / elapsed.count() / 1e9;
}

}  // namespace thermocline::tools
