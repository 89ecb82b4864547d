#include "tests/engine/spec/enumerate.h"

#include <algorithm>
#include <cmath>
#include <mutex>
#include <numeric>

namespace thermocline::spec {
namespace {

struct Interval {
  long double low = 0, high = 1;
};
using Variable = std::pair<std::uint64_t, sampling::Stream>;
using Box = std::map<Variable, Interval>;  // missing variables have all of [0, 1)

// The random source of one run: a box that shrinks, and the pieces cut from it.
class BoxRandomSource final : public sampling::RandomSource {
 public:
  BoxRandomSource(Box box, std::vector<Box>& waiting) : box_(std::move(box)), waiting_(waiting) {}

  int Pick(const sampling::Distribution& from, std::uint64_t position,
           sampling::Stream stream) const override {
    const std::lock_guard lock(mutex_);
    const auto order = Ascending(from);
    std::vector<long double> ends;
    long double sum = 0;
    for (const std::size_t i : order) ends.push_back(sum += from.weights[i]);
    for (long double& end : ends) end /= sum;
    return from.tokens[order[Resolve({position, stream}, ends)]];
  }

  // Guesses must not change the drawn tokens. So they are the token that Pick draws, then tokens by
  // weight, and cut no box.
  void Rank(const sampling::Distribution& from, std::uint64_t position, sampling::Stream stream,
            std::size_t count, Tokens& tokens) const override {
    tokens.clear();
    if (count == 0) return;
    if (stream == sampling::Stream::kToken) tokens.push_back(Pick(from, position, stream));
    auto order = Ascending(from);
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return from.weights[a] > from.weights[b];
    });
    for (const std::size_t i : order) {
      const bool drawn = !tokens.empty() && from.tokens[i] == tokens[0];
      if (!drawn && tokens.size() < count) tokens.push_back(from.tokens[i]);
    }
  }

  bool Accept(double probability, std::uint64_t position) const override {
    const std::lock_guard lock(mutex_);
    const long double threshold = std::clamp(probability, 0.0, 1.0);
    return Resolve({position, sampling::Stream::kAccept}, {threshold, 1}) == 0;
  }

  long double Volume() const {
    long double volume = 1;
    for (const auto& [variable, interval] : box_) volume *= interval.high - interval.low;
    return volume;
  }

 private:
  static std::vector<std::size_t> Ascending(const sampling::Distribution& from) {
    std::vector<std::size_t> order(from.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::sort(order.begin(), order.end(),
              [&](std::size_t a, std::size_t b) { return from.tokens[a] < from.tokens[b]; });
    return order;
  }

  // The index of the piece, among those that end at `ends`, in which the variable lies.
  std::size_t Resolve(const Variable& variable, const std::vector<long double>& ends) const {
    Interval& interval = box_[variable];
    std::size_t piece = 0;
    while (piece + 1 < ends.size() && ends[piece] <= interval.low) ++piece;
    if (piece + 1 < ends.size() && ends[piece] < interval.high) {
      Box rest = box_;
      rest[variable].low = interval.high = ends[piece];
      waiting_.push_back(std::move(rest));
    }
    return piece;
  }

  mutable std::mutex mutex_;
  mutable Box box_;
  std::vector<Box>& waiting_;
};

}  // namespace

Outcomes Enumerate(const std::function<Tokens(const sampling::RandomSource&)>& decode) {
  Outcomes outcomes;
  std::vector<Box> waiting = {{}};
  while (!waiting.empty()) {
    Box box = std::move(waiting.back());
    waiting.pop_back();
    const BoxRandomSource random(std::move(box), waiting);
    const Tokens tokens = decode(random);
    outcomes[tokens] += random.Volume();
  }
  return outcomes;
}

std::pair<long double, Tokens> Difference(const Outcomes& a, const Outcomes& b) {
  std::pair<long double, Tokens> worst{0, {}};
  const auto compare = [&worst](const Outcomes& from, const Outcomes& with) {
    for (const auto& [tokens, probability] : from) {
      const auto other = with.find(tokens);
      const long double there = other == with.end() ? 0 : other->second;
      if (const long double by = std::abs(probability - there); by > worst.first)
        worst = {by, tokens};
    }
  };
  compare(a, b);
  compare(b, a);
  return worst;
}

long double Total(const Outcomes& outcomes) {
  long double total = 0;
  for (const auto& [tokens, probability] : outcomes) total += probability;
  return total;
}

}  // namespace thermocline::spec
