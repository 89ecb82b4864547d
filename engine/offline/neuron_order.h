// The order of a layer's neurons in the bundle file: neurons that fire together are neighbours, so
// that one read fetches several needed ones.
//
// The hot ones, which a cache holds anyway, come first, by frequency. The rest is divided into
// paths: pairs of neurons, the closest first, are made neighbours unless one of them already has
// two or they are ends of the same path (the greedy heuristic for a shortest tour). Paths are
// sorted by frequency, and neurons that were never active come last.
//
// Pairs are close if common^2 / either is large (tokens that activated both; one or both):
// Jaccard's index times the possible gain. Mean runs on held-out tokens, a 7B-shaped model with
// topics (layer 3) and Tidepool (layers 1, 4), hot above 0.2:
//   common^2 / either    8.38  1.40  1.43     common / either     8.14  1.41  1.43
//   common - by chance   8.18  1.41  1.42     common              3.76  1.40  1.39
//   common / the rarer   2.26  1.15  1.24     by frequency alone  1.29  1.09  1.15
//   at random            1.05  1.03  1.10
// *Source:* RIPPLE (Wang et al. 2024), section 4, for linking by co-activation.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/base/ratio.h"
#include "engine/base/worker_pool.h"

namespace thermocline::offline {

// The tokens that activated each neuron of a layer, as bits.
class ActiveColumns {
 public:
  ActiveColumns(int neurons, int tokens)
      : neurons_(neurons),
        tokens_(tokens),
        words_(static_cast<std::size_t>((tokens + 63) / 64)),
        bits_(neurons * words_) {}

  int neurons() const { return neurons_; }
  int tokens() const { return tokens_; }
  void Set(int neuron, int token) {
    bits_[neuron * words_ + (token / 64)] |= std::uint64_t{1} << (token % 64);
  }
  bool Get(int neuron, int token) const {
    return (column(neuron)[token / 64] >> (token % 64) & 1) != 0;
  }
  std::span<const std::uint64_t> column(int neuron) const {
    return std::span(bits_).subspan(neuron * words_, words_);
  }
  // Returns only the tokens [0, tokens).
  ActiveColumns First(int tokens) const;
  // [F] number of tokens that activated each neuron
  std::vector<std::uint32_t> Counts() const;

 private:
  int neurons_, tokens_;
  std::size_t words_;
  std::vector<std::uint64_t> bits_;  // [F, words]
};

struct NeuronOrder {
  std::vector<std::uint32_t> neurons;  // [F] by place
  int hot = 0;                         // number of hot ones, at the front
};

// Neurons active for more than `hot` of the tokens, then the others by descending count.
NeuronOrder OrderByFrequency(std::span<const std::uint32_t> counts, std::int64_t tokens,
                             double hot);
// The order described at the top. Deterministic at any number of threads.
NeuronOrder OrderByCoactivation(const ActiveColumns& active, double hot, base::WorkerPool& pool);

// The inverse of the order: position[neurons[k]] = k.
std::vector<std::uint32_t> PositionsOf(const NeuronOrder& order);

// Runs of neighbours in `neurons` that tokens [begin, end) need; needed / runs is the mean length.
struct RunCount {
  std::int64_t needed = 0, runs = 0;
  double mean() const { return base::Ratio(needed, runs); }
};
RunCount CountRuns(const ActiveColumns& active, std::span<const std::uint32_t> neurons, int begin,
                   int end);

}  // namespace thermocline::offline
