// Statistics of the use of a layer's neurons: how often each is active, how skewed the distribution
// is, and how much the active neurons of consecutive tokens overlap.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace thermocline::offline {

inline constexpr std::array kUnionWindows = {2, 4, 8, 16};  // tokens

// Collects one layer's active sets, token by token. Thread-compatible.
class ActivationCounter {
 public:
  explicit ActivationCounter(int neurons);

  // The next token does not follow the previous one.
  void BeginSequence();
  // The neurons of one token, [F]: zero = not active.
  void Add(std::span<const float> neurons);

  std::int64_t tokens() const { return tokens_; }
  const std::vector<std::uint32_t>& counts() const { return counts_; }  // [F]
  // Mean share of neurons active for a token.
  double active_share() const;
  // Returns the share of a token's active neurons that was also active at the previous token.
  double overlap() const;
  // Mean share of neurons active for any of kUnionWindows[i] consecutive tokens; 0 if no sequence
  // was that long.
  double union_share(std::size_t i) const;

 private:
  struct Window {
    std::vector<std::uint64_t> bits;  // union of the window so far
    int tokens = 0;
    std::int64_t windows = 0, active = 0;
  };

  int neurons_;
  std::int64_t tokens_ = 0, active_ = 0;
  std::int64_t followed_ = 0, kept_ = 0;  // active neurons of tokens with a predecessor; active
                                          // there too
  std::vector<std::uint32_t> counts_;     // [F]
  std::vector<std::uint64_t> now_, before_;
  bool has_before_ = false;
  std::array<Window, kUnionWindows.size()> windows_;
};

// The power law: frequency of rank r ~ r^-exponent.
struct ZipfFit {
  double exponent = 0;
  double r_squared = 0;  // of the fit in logarithms
  int ranks = 0;         // number of fitted ranks
};
// Least squares of log count over log rank, weighted by 1 / rank so that every octave of ranks has
// the same weight. Ranks with fewer than 8 activations are noise, and neurons that are nearly
// always active (9 of 10 tokens) are capped at certainty: both are left out.
ZipfFit FitZipf(std::span<const std::uint32_t> counts, std::int64_t tokens);

// The smallest share of neurons that accounts for `share` of the activations; 0 if there are none.
// Source: PowerInfer, figure 5.
double HotShare(std::span<const std::uint32_t> counts, double share);

// Neurons by the share of tokens that activate them.
struct FrequencyBin {
  double upper = 0;  // share, inclusive; the lower bound is the previous bin's; the first is 0
  int neurons = 0;
};
std::vector<FrequencyBin> FrequencyHistogram(std::span<const std::uint32_t> counts,
                                             std::int64_t tokens);

}  // namespace thermocline::offline
