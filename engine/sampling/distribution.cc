#include "engine/sampling/distribution.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace thermocline::sampling {
namespace {

// SplitMix64's finaliser. Source: Steele et al. 2014.
std::uint64_t Mix(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
  return z ^ (z >> 31);
}

constexpr std::uint64_t kGolden = 0x9E3779B97F4A7C15U;

std::uint64_t KeyOf(std::uint64_t seed, std::uint64_t position, Stream stream) {
  const std::uint64_t at = Mix(seed + (position + 1) * kGolden);
  return Mix(at ^ (static_cast<std::uint64_t>(stream) + 1) * 0xD1B54A32D192ED03U);
}

// In (0, 1]: adds half a step, which rounds up to 1 at the top.
double Uniform(std::uint64_t bits) { return (static_cast<double>(bits >> 11) + 0.5) * 0x1p-53; }

double UniformOf(std::uint64_t key, int token) {
  return Uniform(Mix(key + (static_cast<std::uint64_t>(token) + 1) * kGolden));
}

}  // namespace

void Distribution::Reserve(std::size_t count) {
  tokens.reserve(count);
  weights.reserve(count);
}

void Distribution::Clear() {
  tokens.clear();
  weights.clear();
  total = 0;
}

void Distribution::Add(int token, double weight) {
  tokens.push_back(token);
  weights.push_back(weight);
  total += weight;
}

double Distribution::Probability(int token) const {
  const auto at = std::find(tokens.begin(), tokens.end(), token);
  return at == tokens.end() ? 0 : weights[at - tokens.begin()] / total;
}

int SeededRandomSource::Pick(const Distribution& from, std::uint64_t position,
                             Stream stream) const {
  if (from.size() == 1) return from.tokens[0];
  const std::uint64_t key = KeyOf(seed_, position, stream);
  // The winner of the race -log(u) / w. The logarithm is computed only if 1 - u <= -log(u) could
  // still win.
  double best = std::numeric_limits<double>::infinity();
  int token = from.tokens[0];
  for (std::size_t i = 0; i < from.size(); ++i) {
    const double u = UniformOf(key, from.tokens[i]);
    if (1 - u > best * from.weights[i]) continue;
    const double time = -std::log(u) / from.weights[i];
    if (time > best || (time == best && from.tokens[i] > token)) continue;
    best = time;
    token = from.tokens[i];
  }
  return token;
}

void SeededRandomSource::Rank(const Distribution& from, std::uint64_t position, Stream stream,
                              std::size_t count, std::vector<int>& tokens) const {
  constexpr std::size_t kRankMax = 16;
  struct Entry {
    double time;
    int token;
  };
  Entry first[kRankMax];
  count = std::min({count, kRankMax, from.size()});
  const std::uint64_t key = KeyOf(seed_, position, stream);
  std::size_t held = 0;
  for (std::size_t i = 0; i < from.size(); ++i) {
    const double u = UniformOf(key, from.tokens[i]);
    const bool full = held == count;
    if (full && (count == 0 || 1 - u > first[held - 1].time * from.weights[i])) continue;
    const Entry entry{-std::log(u) / from.weights[i], from.tokens[i]};
    const auto before = [](const Entry& a, const Entry& b) {
      return a.time < b.time || (a.time == b.time && a.token < b.token);
    };
    if (full && !before(entry, first[held - 1])) continue;
    std::size_t at = full ? held - 1 : held++;
    for (; at > 0 && before(entry, first[at - 1]); --at) first[at] = first[at - 1];
    first[at] = entry;
  }
  tokens.clear();
  for (std::size_t i = 0; i < held; ++i) tokens.push_back(first[i].token);
}

double RandomSource::Lead(const Distribution& from, std::uint64_t, Stream, int first,
                          int second) const {
  return std::log(from.Probability(first) / from.Probability(second));
}

double SeededRandomSource::Lead(const Distribution& from, std::uint64_t position, Stream stream,
                                int first, int second) const {
  const std::uint64_t key = KeyOf(seed_, position, stream);
  const auto time = [&](int token) {
    return -std::log(UniformOf(key, token)) / from.Probability(token);
  };
  return std::log(time(second) / time(first));
}

bool SeededRandomSource::Accept(double probability, std::uint64_t position) const {
  return Uniform(KeyOf(seed_, position, Stream::kAccept)) < probability;
}

}  // namespace thermocline::sampling
