#include "engine/tools/bandwidth_probe.h"

#include <chrono>
#include <numeric>
#include <vector>

namespace thermocline::tools {
namespace {

constexpr std::size_t kBytes = std::size_t{1} << 30;
constexpr int kItems = 512;

std::uint64_t SumOf(const std::uint64_t* data, std::size_t words) {
  std::uint64_t lanes[32] = {};
  for (std::size_t i = 0; i < words; i += 32) {
    for (std::size_t lane = 0; lane < 32; ++lane) lanes[lane] += data[i + lane];
  }
  return std::accumulate(std::begin(lanes), std::end(lanes), std::uint64_t{0});
}

}  // namespace

Result<BandwidthProbe> BandwidthProbe::Create() {
  BandwidthProbe probe;
  ASSIGN_OR_RETURN(probe.buffer_, base::HugeBuffer::Allocate(kBytes));
  auto* words = reinterpret_cast<std::uint64_t*>(probe.buffer_.data());
  for (std::size_t i = 0; i < kBytes / 8; ++i) words[i] = i * 0x9E3779B97F4A7C15U;
  return probe;
}

double BandwidthProbe::MeasureGbPerS(base::WorkerPool& pool) {
  std::vector<std::uint64_t> sums(kItems);
  const auto* data = reinterpret_cast<const std::uint64_t*>(buffer_.data());
  const auto begin = std::chrono::steady_clock::now();
  pool.Run(kItems, [&](int item, int) {
    const std::size_t words = kBytes / 8 / kItems;
    sums[static_cast<std::size_t>(item)] =
        SumOf(data + static_cast<std::size_t>(item) * words, words);
  });
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
  checksum_ = std::accumulate(sums.begin(), sums.end(), std::uint64_t{0});
  return static_cast<double>(kBytes) / elapsed.count() / 1e9;
}

}  // namespace thermocline::tools
