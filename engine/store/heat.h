// The eviction order of cached neurons: least used recently goes first.
//
// A use at token t adds 2^((t - now) / half_life) to a neuron's heat, so heat is a count that
// halves every `half_life` tokens: small half-lives approach recency, large ones frequency. The
// stored value is log2(heat) + now / half_life, which does not change while a neuron is not used,
// so a heap of it stays in order. It only grows, so the heap may hold old values and updates them
// when they reach the top. Numbers are kept near zero, where floats are precise: all are lowered at
// once every 256 half-lives. An incoming entry must be hotter than the one it evicts. On recorded
// traces that is worth 1 to 5 points of hit rate, and half-lives from 128 tokens on are equal
// within 0.4 points; see docs/flash.md.
// *Source:* Lee et al., LRFU (IEEE Transactions on Computers, 2001); the window: LLM in a flash,
// section 3.1.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace thermocline::store {

// Tokens. Measured (docs/flash.md): shorter half-lives lose hits if the use of neurons is steady,
// longer ones only adapt more slowly to a change of topic.
inline constexpr double kHalfLife = 128;
// The half-life of experts, whose use follows the topic (docs/experts.md: replay).
inline constexpr double kExpertHalfLife = 8;

// Entries are numbers in [0, entries). Thread-compatible. Allocates nothing after construction.
class HeatOrder {
 public:
  struct Params {
    std::size_t entries = 0, cached_max = 0;
    double half_life = kHalfLife;  // tokens
  };
  explicit HeatOrder(const Params& params);

  // Initialises an entry as if it had been used with `frequency` (share of tokens) until now.
  void Warm(std::uint32_t entry, double frequency);
  // The entry is used by the token `now`; repeated uses by one token count once. Requires: 0 <= now
  // < 2^31, not less than in any earlier call.
  void Touch(std::uint32_t entry, std::int64_t now);
  // The entry is cached from now on. Requires: it is not cached yet; fewer than cached_max entries
  // are.
  void Insert(std::uint32_t entry);
  // Protects the entry from Evict as if it were used at `now`, until Release, which is given the
  // earlier value of last_use.
  void Hold(std::uint32_t entry, std::int64_t now) {
    last_use_[entry] = static_cast<std::int32_t>(now);
  }
  void Release(std::uint32_t entry, std::int64_t before);
  // Evicts and returns the coldest cached entry not used at token `since` or later; kNone if there
  // is none.
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  std::uint32_t Evict(std::int64_t since);
  // As Evict(now), for an entry that the token `now` uses (its Touch comes later): also kNone if
  // the coldest entry is at least as hot as this one including this use. Otherwise a rarely used
  // entry would replace a more frequently used one, and be evicted before its next use.
  std::uint32_t EvictFor(std::uint32_t entry, std::int64_t now);

  // Negative: never used.
  std::int64_t last_use(std::uint32_t entry) const { return last_use_[entry]; }
  std::size_t cached() const { return heap_.size() + held_.size(); }
  // log2 of the count, as of the token 0 of the last lowering, for comparisons.
  float heat(std::uint32_t entry) const { return heat_[entry]; }

 private:
  struct Item {
    float heat;
    std::uint32_t entry;
  };
  void SiftDown(std::size_t at);
  void SiftUp(std::size_t at);
  // Brings the coldest entry not used at `since` or later to the top; returns false if there is
  // none.
  bool FindColdest(std::int64_t since);
  void MendTop();
  Item PopTop();
  void ReturnHeld();
  void LowerAll(float by);
  // The heat that a use at token `now` adds, log2.
  float UseAt(std::int64_t now) const {
    return static_cast<float>(static_cast<double>(now - base_) / half_life_);
  }

  const double half_life_;
  const std::size_t cached_max_;
  std::int64_t base_ = 0;               // the token whose uses have weight 1: 0 in heat_
  std::int64_t now_ = 0;                // of the last Touch
  std::vector<float> heat_;             // [entries] log2 scale, as above; -infinity: never used
  std::vector<std::int32_t> last_use_;  // [entries] tokens
  std::vector<Item> heap_;              // least first
  // Cold entries in use: kept out of the heap, because otherwise every Evict of a step would meet
  // them again.
  std::vector<Item> held_;
  std::int64_t held_since_ = -1;  // the `since` of the Evict that found them
};

}  // namespace thermocline::store
