// Replays a trace against caches of neurons: how often a needed neuron is in memory.
//
// One cache for all layers, of `capacity` neurons, empty at the begin. A token's uses come in its
// order: layer by layer, each neuron once. What a token uses in a layer is served in any case; a
// policy decides what stays.
//   lru     the neuron used longest ago leaves
//   lfu     the one used least often since the begin, used longest ago among equals
//   slru    two lists of least recent use: what is used again while cached is protected, up to four
//           fifths of the capacity. Source: Karedla et al. 1994
//   window  the neurons of the last k tokens, k the largest whose neurons fit at every token of the
//           trace (found out afterwards, so the policy has it better than in life).
//           Source: LLM in a flash, section 3.1
//   ours    engine/store/heat.h as the neuron store uses it: the coldest that this token does not
//           use leaves, for what is hotter
//   belady  the one whose next use is farthest leaves, or does not come in: no policy without sight
//           of the future does better. Source: Belady 1966, with bypass
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "engine/base/ratio.h"
#include "engine/store/heat.h"
#include "engine/store/trace.h"

namespace thermocline::offline {

enum class CachePolicy { kLru, kLfu, kSlru, kWindow, kHeat, kBelady };
inline constexpr CachePolicy kCachePolicies[] = {CachePolicy::kLru,  CachePolicy::kLfu,
                                                 CachePolicy::kSlru, CachePolicy::kWindow,
                                                 CachePolicy::kHeat, CachePolicy::kBelady};
std::string_view CachePolicyName(CachePolicy policy);

struct HitCount {
  std::int64_t needed = 0, hits = 0;
  double rate() const { return base::Ratio(hits, needed); }
};
struct ReplayResult {
  HitCount cold;   // of the first tokens, while the cache fills
  HitCount warm;   // of the others
  int window = 0;  // k, of kWindow
};

// The neurons that a trace's tokens use, prepared for many replays. Borrows the trace.
// Thread-compatible.
class Replay {
 public:
  struct Options {
    double cold_share = 0.1;              // of the tokens, counted apart
    double half_life = store::kHalfLife;  // tokens, of kHeat
    bool bypass = true;  // kHeat lets nothing in that is colder than all that may leave
  };
  Replay(const store::Trace& trace, const Options& options);

  // Requires: capacity > 0.
  ReplayResult Run(CachePolicy policy, std::size_t capacity) const;
  std::size_t entries() const { return entries_; }  // L * F

 private:
  // Calls access(entry, position, token) for each use; it says whether that was a hit.
  template <typename Access>
  ReplayResult ForUses(const Access& access) const;
  ReplayResult Lru(std::size_t capacity) const;
  ReplayResult Lfu(std::size_t capacity) const;
  ReplayResult Slru(std::size_t capacity) const;
  ReplayResult Window(std::size_t capacity) const;
  ReplayResult Heat(std::size_t capacity) const;
  ReplayResult Belady(std::size_t capacity) const;
  // The most neurons that any `window` tokens in a row use.
  std::size_t LargestUnion(int window) const;

  const store::Trace& trace_;
  const Options options_;
  const std::size_t entries_;
  std::vector<std::uint32_t> uses_;         // entries in order
  std::vector<std::uint64_t> token_begin_;  // [tokens + 1] into uses_
  std::vector<std::uint32_t> next_;         // [uses] position of the entry's next use
};

}  // namespace thermocline::offline
