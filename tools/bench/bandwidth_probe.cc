#include "tools/bench/bandwidth_probe.h"

#include <chrono>
#include <numeric>
#include <vector>

namespace thermocline::tools {
namespace {

constexpr std::size_t kWeightsMin = std::size_t{512} << 20;  // far beyond any last-level cache
constexpr std::size_t kOwnBytes = std::size_t{1} << 30;
constexpr std::size_t kItemBytes = std::size_t{2} << 20;

std::uint64_t SumOf(const std::uint64_t* data, std::size_t words) {
  std::uint64_t lanes[32] = {};
  for (std::size_t i = 0; i + 32 <= words; i += 32) {
    for (std::size_t lane = 0; lane < 32; ++lane) lanes[lane] += data[i + lane];
  }
  return std::accumulate(std::begin(lanes), std::end(lanes), std::uint64_t{0});
}

}  // namespace

Result<BandwidthProbe> BandwidthProbe::Create(std::span<const std::byte> weights) {
  BandwidthProbe probe;
  probe.bytes_ = weights;
  if (weights.size() >= kWeightsMin) return probe;
  ASSIGN_OR_RETURN(probe.own_, base::HugeBuffer::Allocate(kOwnBytes));
  auto* words = reinterpret_cast<std::uint64_t*>(probe.own_.data());
  for (std::size_t i = 0; i < kOwnBytes / 8; ++i) words[i] = i * 0x9E3779B97F4A7C15U;
  probe.bytes_ = {probe.own_.data(), kOwnBytes};
  return probe;
}

double BandwidthProbe::MeasureGbPerS(base::WorkerPool& pool) {
  const int items = static_cast<int>(bytes_.size() / kItemBytes);
  std::vector<std::uint64_t> sums(items);
  const auto begin = std::chrono::steady_clock::now();
  pool.Run(items, [&](int item, int) {
    const std::size_t at = item;
    const auto* data = reinterpret_cast<const std::uint64_t*>(bytes_.data() + at * kItemBytes);
    sums[at] = SumOf(data, kItemBytes / 8);
  });
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
  checksum_ = std::accumulate(sums.begin(), sums.end(), std::uint64_t{0});
  return items * static_cast<double>(kItemBytes) / elapsed.count() / 1e9;
}

}  // namespace thermocline::tools
