// A distribution over tokens, and draws from it that depend only on seed, position and token.
//
// A draw takes the token with the smallest E / w, where w is the token's weight and E its own
// exponential variable: the token is drawn with probability w / sum of w (the "exponential race",
// Gumbel's trick). Each E is a function of (seed, position, stream, token), so all draws at a
// position, from a draft's distribution or the target's and in any order, use the same numbers, and
// two similar distributions give the same token most of the time.
// Source: Gumbel 1954; for drafts Daliri et al. 2025 ("drafter-invariant" speculative decoding).
#pragma once

#include <cstdint>
#include <vector>

namespace thermocline::sampling {

// The possible tokens, each once, unordered, and their weights > 0, unnormalised.
struct Distribution {
  std::vector<int> tokens;
  std::vector<double> weights;
  double total = 0;  // of the weights

  std::size_t size() const { return tokens.size(); }
  static constexpr std::size_t kBytes = sizeof(int) + sizeof(double);  // of a token reserved
  void Reserve(std::size_t count);
  void Clear();
  void Add(int token, double weight);
  // 0 for a token that is not in the distribution.
  double Probability(int token) const;
};

// The purpose of a drawn number. Streams are independent of each other.
enum class Stream : std::uint64_t { kToken, kAccept, kCorrection };

// The source of randomness in decoding; tests replace it to enumerate outcomes. Thread-safe
// (const).
class RandomSource {
 public:
  virtual ~RandomSource() = default;
  // Draws a token of `from` with its probability. `position`: number of tokens before it in the
  // sequence. Requires: from is not empty.
  virtual int Pick(const Distribution& from, std::uint64_t position, Stream stream) const = 0;
  // The `count` tokens that Pick would draw in turn if each was removed from `from`: the
  // alternatives to the first. Written to `tokens` (cleared first).
  virtual void Rank(const Distribution& from, std::uint64_t position, Stream stream,
                    std::size_t count, std::vector<int>& tokens) const = 0;
  // Returns the lead of `first` over `second` in this race, as a difference of logarithms: the
  // ratio of their weights must change by that much for the order to change. Both are in `from`.
  virtual double Lead(const Distribution& from, std::uint64_t position, Stream stream, int first,
                      int second) const;
  // True with this probability.
  virtual bool Accept(double probability, std::uint64_t position) const = 0;
};

// Counter-based: allocates only as much as Rank's vector needs.
class SeededRandomSource final : public RandomSource {
 public:
  explicit SeededRandomSource(std::uint64_t seed = 0) : seed_(seed) {}
  int Pick(const Distribution& from, std::uint64_t position, Stream stream) const override;
  void Rank(const Distribution& from, std::uint64_t position, Stream stream, std::size_t count,
            std::vector<int>& tokens) const override;
  double Lead(const Distribution& from, std::uint64_t position, Stream stream, int first,
              int second) const override;
  bool Accept(double probability, std::uint64_t position) const override;

 private:
  std::uint64_t seed_;
};

}  // namespace thermocline::sampling
