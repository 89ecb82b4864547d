// The tokens that may be drawn, and the truncations that keep the most probable or most typical
// ones.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/sampling/distribution.h"

namespace thermocline::sampling {

// A token is "more probable" with a larger logit, or with a lower id at the same logit. Each
// truncation works on the tokens kept by the previous one and leaves them unordered: only as much
// as necessary is sorted. Thread-compatible. Buffers are sized at construction; later calls do not
// allocate.
class Candidates {
 public:
  explicit Candidates(int vocab_size);
  static std::size_t Bytes(int vocab_size);

  // Starts with every token, or with those whose bit in `mask` is set. Requires: logits [V].
  void Collect(std::span<const float> logits);
  void Collect(std::span<const float> logits, std::span<const std::uint64_t> mask);
  // The id of the most probable token. Requires: at least one was collected.
  int Best() const;
  // Keeps the `count` most probable tokens.
  void KeepMostProbable(std::size_t count);
  // Sets each token's unnormalised probability, exp((logit - max) / temperature). `max`: the
  // largest logit. The functions below require this call.
  void Weigh(double max, double temperature);
  // Keeps the smallest set with at least `share` of the weight, by distance of the surprise -log p
  // from the entropy.
  void KeepTypical(double share);
  // Keeps the smallest set of the most probable tokens with at least `share` of the weight.
  void KeepNucleus(double share);
  // Writes the tokens with at least `min_p` times the largest weight; at least one token.
  void WriteTo(Distribution& out, double min_p) const;

 private:
  static constexpr int kBins = 1024;
  struct Candidate {
    float logit;
    int token;
  };
  static bool MoreProbable(const Candidate& a, const Candidate& b);
  void MoveMedianTo(std::size_t to, std::size_t a, std::size_t b, std::size_t c);
  std::size_t Partition(std::size_t begin, std::size_t end, Candidate pivot);
  double WeightOf(const Candidate& candidate) const;
  template <typename Key, typename Before>
  void KeepMass(double mass, Key key, Before before);
  template <typename Key>
  void FillBins(double scale, Key key);
  template <typename Wanted>
  std::size_t MoveToFront(std::size_t from, Wanted wanted);
  template <typename Before>
  std::size_t KeepMassOf(std::size_t begin, std::size_t end, double mass, Before before);

  std::vector<Candidate> all_;      // [V]; the first kept_ may be drawn
  std::vector<double> weights_;     // [V] of the tokens in all_
  std::vector<int> places_;         // [V] in all_, of the tokens that a truncation moves
  std::array<double, kBins> bins_;  // weights in the order in which a truncation keeps tokens
  std::size_t kept_ = 0;
  double max_ = 0, temperature_ = 1;
  double total_ = 0;  // of the kept weights
};

// The largest of `values`; NaN if the first is. Requires: values is not empty.
float Largest(std::span<const float> values);

}  // namespace thermocline::sampling
