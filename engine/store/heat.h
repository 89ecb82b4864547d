// Which of the cached neurons to give up: those used least of late.
//
// A use at token t adds 2^((t - now) / half_life) to a neuron's heat, so heat is a count that
// halves every `half_life` tokens: small half-lives are recency, large ones frequency. Stored is
// log2(heat) + now / half_life, which does not change while a neuron is not used, so a heap of it
// stays in order; it only grows, so the heap may hold old values and mends them when they come up.
// *Source:* Lee et al., LRFU (IEEE Transactions on Computers, 2001); the window: LLM in a flash,
// section 3.1.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace thermocline::store {

// Entries are numbers in [0, entries). Thread-compatible. Allocates nothing after construction.
class HeatOrder {
 public:
  struct Params {
    std::size_t entries = 0, cached_max = 0;
    double half_life = 32;  // tokens
  };
  explicit HeatOrder(const Params& params);

  // Starts an entry as if it had been used with `frequency` (share of tokens) until now.
  void Warm(std::uint32_t entry, double frequency);
  // The entry is used by the token `now`; more than once a token counts once.
  void Touch(std::uint32_t entry, std::int64_t now);
  // The entry is cached from now on. Requires: it is not; fewer than cached_max are.
  void Insert(std::uint32_t entry);
  // The coldest cached entry not used at token `since` or later leaves; kNone if there is none.
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  std::uint32_t Evict(std::int64_t since);
  // Whether `entry` is hotter than the coldest of the cached; true while there is room.
  bool HotterThanColdest(std::uint32_t entry);

  std::int64_t last_use(std::uint32_t entry) const { return last_use_[entry]; }
  float heat(std::uint32_t entry) const { return heat_[entry]; }

 private:
  struct Item {
    float heat;
    std::uint32_t entry;
  };
  void SiftDown(std::size_t at);
  void SiftUp(std::size_t at);
  void MendTop();

  const double half_life_;
  const std::size_t cached_max_;
  std::vector<float> heat_;             // [entries] log2 scale, as above
  std::vector<std::int32_t> last_use_;  // [entries] tokens
  std::vector<Item> heap_;              // least first
  std::vector<Item> held_;              // scratch of Evict
};

}  // namespace thermocline::store
