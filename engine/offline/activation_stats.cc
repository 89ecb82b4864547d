#include "engine/offline/activation_stats.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <numeric>

#include "engine/base/check.h"
#include "engine/base/ratio.h"

namespace thermocline::offline {
namespace {

std::int64_t CountBits(std::span<const std::uint64_t> words) {
  std::int64_t count = 0;
  for (const std::uint64_t word : words) count += std::popcount(word);
  return count;
}

std::vector<std::uint32_t> Falling(std::span<const std::uint32_t> counts) {
  std::vector<std::uint32_t> sorted(counts.begin(), counts.end());
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  return sorted;
}

}  // namespace

ActivationCounter::ActivationCounter(int neurons) : neurons_(neurons), counts_(neurons) {
  const std::size_t words = (counts_.size() + 63) / 64;
  now_.resize(words);
  before_.resize(words);
  for (Window& window : windows_) window.bits.resize(words);
}

void ActivationCounter::BeginSequence() {
  has_before_ = false;
  for (Window& window : windows_) {
    window.tokens = 0;
    std::fill(window.bits.begin(), window.bits.end(), 0);
  }
}

void ActivationCounter::Add(std::span<const float> neurons) {
  CHECK_EQ(neurons.size(), counts_.size());
  std::fill(now_.begin(), now_.end(), 0);
  for (std::size_t i = 0; i < neurons.size(); ++i) {
    if (neurons[i] == 0) continue;
    now_[i / 64] |= std::uint64_t{1} << (i % 64);
    ++counts_[i];
  }
  const std::int64_t active = CountBits(now_);
  ++tokens_;
  active_ += active;
  if (has_before_) {
    followed_ += active;
    for (std::size_t i = 0; i < now_.size(); ++i) kept_ += std::popcount(now_[i] & before_[i]);
  }
  for (std::size_t w = 0; w < windows_.size(); ++w) {
    Window& window = windows_[w];
    for (std::size_t i = 0; i < now_.size(); ++i) window.bits[i] |= now_[i];
    if (++window.tokens < kUnionWindows[w]) continue;
    ++window.windows;
    window.active += CountBits(window.bits);
    window.tokens = 0;
    std::fill(window.bits.begin(), window.bits.end(), 0);
  }
  std::swap(now_, before_);
  has_before_ = true;
}

double ActivationCounter::active_share() const {
  return base::Ratio(active_, static_cast<double>(tokens_) * neurons_);
}

double ActivationCounter::overlap() const { return base::Ratio(kept_, followed_); }

double ActivationCounter::union_share(std::size_t i) const {
  return base::Ratio(windows_[i].active, static_cast<double>(windows_[i].windows) * neurons_);
}

ZipfFit FitZipf(std::span<const std::uint32_t> counts, std::int64_t tokens) {
  constexpr std::uint32_t kCountMin = 8;
  const double count_max = 0.9 * static_cast<double>(tokens);
  const std::vector<std::uint32_t> sorted = Falling(counts);
  double weight = 0, x = 0, y = 0, xx = 0, xy = 0, yy = 0;
  ZipfFit fit;
  for (std::size_t i = 0; i < sorted.size() && sorted[i] >= kCountMin; ++i) {
    if (sorted[i] > count_max) continue;
    const double rank = static_cast<double>(i + 1), w = 1 / rank;
    const double log_rank = std::log(rank), log_count = std::log(sorted[i]);
    weight += w;
    x += w * log_rank;
    y += w * log_count;
    xx += w * log_rank * log_rank;
    xy += w * log_rank * log_count;
    yy += w * log_count * log_count;
    ++fit.ranks;
  }
  const double variance = weight * xx - x * x, covariance = weight * xy - x * y;
  const double count_variance = weight * yy - y * y;
  if (fit.ranks < 3 || variance <= 0) return {};
  fit.exponent = -covariance / variance;
  fit.r_squared = count_variance > 0 ? covariance * covariance / (variance * count_variance) : 0;
  return fit;
}

double HotShare(std::span<const std::uint32_t> counts, double share) {
  const std::vector<std::uint32_t> sorted = Falling(counts);
  const double total = std::accumulate(sorted.begin(), sorted.end(), 0.0);
  if (total == 0) return 0;
  double sum = 0;
  std::size_t hot = 0;
  while (hot < sorted.size() && sum < share * total) sum += sorted[hot++];
  return base::Ratio(hot, sorted.size());
}

std::vector<FrequencyBin> FrequencyHistogram(std::span<const std::uint32_t> counts,
                                             std::int64_t tokens) {
  std::vector<FrequencyBin> bins;
  for (const double upper : {0.0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0})
    bins.push_back({.upper = upper, .neurons = 0});
  for (const std::uint32_t count : counts) {
    const double frequency = base::Ratio(count, tokens);
    auto bin = bins.begin();
    while (bin + 1 != bins.end() && frequency > bin->upper) ++bin;
    ++bin->neurons;
  }
  return bins;
}

}  // namespace thermocline::offline
