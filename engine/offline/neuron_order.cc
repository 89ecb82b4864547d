#include "engine/offline/neuron_order.h"

#include <algorithm>
#include <array>
#include <bit>
#include <numeric>

#include "engine/base/index.h"

namespace thermocline::offline {
namespace {

constexpr std::size_t kNeighbours = 32;  // pairs kept for each neuron

struct Pair {
  float closeness = 0;
  std::uint32_t a = 0, b = 0;
  // The closest first; ties by the order of the neurons.
  bool operator<(const Pair& other) const {
    if (closeness != other.closeness) return closeness > other.closeness;
    return a != other.a ? a < other.a : b < other.b;
  }
};

std::uint32_t CountCommon(std::span<const std::uint64_t> a, std::span<const std::uint64_t> b) {
  std::uint32_t common = 0;
  for (std::size_t i = 0; i < a.size(); ++i) common += std::popcount(a[i] & b[i]);
  return common;
}

// Returns the closeness of two neurons with `a` and `b` activations, `common` of them by the same
// tokens.
float Closeness(std::uint32_t a, std::uint32_t b, std::uint32_t common) {
  const auto both = static_cast<float>(common);
  return both * both / static_cast<float>(a + b - common);
}

// Returns the closest pairs of each of the cold neurons, sorted.
std::vector<Pair> BestPairs(const ActiveColumns& active, std::span<const std::uint32_t> counts,
                            std::span<const std::uint32_t> cold, base::WorkerPool& pool) {
  std::vector<std::vector<Pair>> best(cold.size());
  pool.Run(base::IntSize(cold), [&](int item, int) {
    const std::uint32_t a = cold[item];
    const auto column = active.column(a);
    if (counts[a] == 0) return;
    std::vector<Pair>& pairs = best[item];
    std::vector<Pair> all;
    all.reserve(cold.size());
    for (const std::uint32_t b : cold) {
      if (a == b || counts[b] == 0) continue;
      const std::uint32_t common = CountCommon(column, active.column(b));
      if (common > 0)
        all.push_back({Closeness(counts[a], counts[b], common), std::min(a, b), std::max(a, b)});
    }
    const std::size_t kept = std::min(kNeighbours, all.size());
    std::partial_sort(all.begin(), all.begin() + kept, all.end());
    pairs.assign(all.begin(), all.begin() + kept);
  });
  std::vector<Pair> joined;
  for (const auto& pairs : best) joined.insert(joined.end(), pairs.begin(), pairs.end());
  std::sort(joined.begin(), joined.end());
  return joined;
}

// Neurons with up to two neighbours each, and no cycles.
class Paths {
 public:
  explicit Paths(std::size_t neurons) : next_(neurons, {kNone, kNone}), set_(neurons) {
    std::iota(set_.begin(), set_.end(), 0);
  }

  void Link(std::uint32_t a, std::uint32_t b) {
    if (next_[a][1] != kNone || next_[b][1] != kNone) return;
    const std::uint32_t root_a = Root(a), root_b = Root(b);
    if (root_a == root_b) return;
    set_[root_a] = root_b;
    next_[a][next_[a][0] == kNone ? 0 : 1] = b;
    next_[b][next_[b][0] == kNone ? 0 : 1] = a;
  }
  bool IsEnd(std::uint32_t neuron) const { return next_[neuron][1] == kNone; }
  // The path that begins with the end `neuron`.
  std::vector<std::uint32_t> From(std::uint32_t neuron) const {
    std::vector<std::uint32_t> path = {neuron};
    for (std::uint32_t before = kNone, at = neuron;;) {
      const std::uint32_t next = next_[at][0] != before ? next_[at][0] : next_[at][1];
      if (next == kNone) return path;
      before = at;
      at = next;
      path.push_back(at);
    }
  }

 private:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  std::uint32_t Root(std::uint32_t at) {
    while (set_[at] != at) at = set_[at] = set_[set_[at]];
    return at;
  }
  std::vector<std::array<std::uint32_t, 2>> next_;
  std::vector<std::uint32_t> set_;  // disjoint-set forest (union-find)
};

// Appends the paths by descending mean count.
void AppendPaths(const Paths& paths, std::span<const std::uint32_t> cold,
                 std::span<const std::uint32_t> counts, std::vector<std::uint32_t>& out) {
  struct Piece {
    double mean;
    std::vector<std::uint32_t> neurons;
  };
  std::vector<Piece> pieces;
  std::vector<bool> taken(counts.size());
  for (const std::uint32_t neuron : cold) {
    if (taken[neuron] || !paths.IsEnd(neuron)) continue;
    Piece piece{0, paths.From(neuron)};
    for (const std::uint32_t each : piece.neurons) {
      taken[each] = true;
      piece.mean += counts[each];
    }
    piece.mean /= base::IntSize(piece.neurons);
    pieces.push_back(std::move(piece));
  }
  std::stable_sort(pieces.begin(), pieces.end(),
                   [](const Piece& a, const Piece& b) { return a.mean > b.mean; });
  for (const Piece& piece : pieces)
    out.insert(out.end(), piece.neurons.begin(), piece.neurons.end());
}

}  // namespace

ActiveColumns ActiveColumns::First(int tokens) const {
  ActiveColumns first(neurons_, tokens);
  for (int i = 0; i < neurons_; ++i) {
    const auto begin = bits_.begin() + i * words_;
    const auto out = first.bits_.begin() + i * first.words_;
    std::copy_n(begin, first.words_, out);
    if (tokens % 64 != 0)
      out[static_cast<std::ptrdiff_t>(first.words_) - 1] &= (std::uint64_t{1} << (tokens % 64)) - 1;
  }
  return first;
}

std::vector<std::uint32_t> ActiveColumns::Counts() const {
  std::vector<std::uint32_t> counts(neurons_);
  for (int i = 0; i < neurons_; ++i) counts[i] = CountCommon(column(i), column(i));
  return counts;
}

NeuronOrder OrderByFrequency(std::span<const std::uint32_t> counts, std::int64_t tokens,
                             double hot) {
  NeuronOrder order;
  order.neurons.resize(counts.size());
  std::iota(order.neurons.begin(), order.neurons.end(), 0);
  std::stable_sort(order.neurons.begin(), order.neurons.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return counts[a] > counts[b]; });
  const double least = hot * static_cast<double>(tokens);
  for (const std::uint32_t neuron : order.neurons) {
    if (counts[neuron] == 0 || counts[neuron] <= least) break;
    ++order.hot;
  }
  return order;
}

NeuronOrder OrderByCoactivation(const ActiveColumns& active, double hot, base::WorkerPool& pool) {
  const std::vector<std::uint32_t> counts = active.Counts();
  NeuronOrder order = OrderByFrequency(counts, active.tokens(), hot);
  const std::vector<std::uint32_t> cold(order.neurons.begin() + order.hot, order.neurons.end());
  Paths paths(counts.size());
  for (const Pair& pair : BestPairs(active, counts, cold, pool)) paths.Link(pair.a, pair.b);
  order.neurons.resize(order.hot);
  AppendPaths(paths, cold, counts, order.neurons);
  return order;
}

std::vector<std::uint32_t> PositionsOf(const NeuronOrder& order) {
  std::vector<std::uint32_t> position(order.neurons.size());
  for (std::size_t k = 0; k < position.size(); ++k)
    position[order.neurons[k]] = static_cast<std::uint32_t>(k);
  return position;
}

RunCount CountRuns(const ActiveColumns& active, std::span<const std::uint32_t> neurons, int begin,
                   int end) {
  RunCount count;
  for (std::size_t k = 0; k < neurons.size(); ++k) {
    for (int token = begin; token < end; ++token) {
      if (!active.Get(neurons[k], token)) continue;
      ++count.needed;
      if (k == 0 || !active.Get(neurons[k - 1], token)) ++count.runs;
    }
  }
  return count;
}

}  // namespace thermocline::offline
