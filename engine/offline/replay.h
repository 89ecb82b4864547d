// Replays a trace against caches of neurons and counts how often a needed neuron is in memory.
//
// One cache for all layers, with space for `capacity` neurons, empty at the beginning. A token's
// uses come in its order: layer by layer, each neuron once. Every use is served; a policy decides
// which neurons stay in the cache.
//   lru     evicts the least recently used neuron
//   lfu     evicts the least frequently used since the beginning, ties by least recent use
//   slru    two LRU lists: a neuron used again while cached is protected, up to four fifths of the
//           capacity. Source: Karedla et al. 1994
//   window  keeps the neurons of the last k tokens, k the largest whose neurons fit at every token
//   of
//           the trace (determined from the whole trace, so better than possible in practice).
//           Source: LLM in a flash, section 3.1
//   ours    engine/store/heat.h as the neuron store uses it: evicts the coldest neuron that this
//   token
//           does not use, for a hotter one
//   belady  evicts the neuron whose next use is farthest, or does not admit it: no policy without
//           knowledge of the future does better. Source: Belady 1966, with bypass
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
  HitCount cold;   // for the first tokens, while the cache fills
  HitCount warm;   // for the others
  int window = 0;  // k, for kWindow
};

// The neurons used by a trace's tokens, prepared for many replays. Borrows the trace.
// Thread-compatible.
class Replay {
 public:
  struct Options {
    double cold_share = 0.1;              // share of the tokens counted separately
    double half_life = store::kHalfLife;  // tokens, for kHeat
    bool bypass = true;  // kHeat does not admit a neuron colder than all that may be evicted
  };
  Replay(const store::Trace& trace, const Options& options);

  // Requires: capacity > 0.
  ReplayResult Run(CachePolicy policy, std::size_t capacity) const;
  std::size_t entries() const { return entries_; }  // L * F

 private:
  // Calls access(entry, position, token) for each use; it returns true for a hit.
  template <typename Access>
  ReplayResult ForUses(const Access& access) const;
  ReplayResult Lru(std::size_t capacity) const;
  ReplayResult Lfu(std::size_t capacity) const;
  ReplayResult Slru(std::size_t capacity) const;
  ReplayResult Window(std::size_t capacity) const;
  ReplayResult Heat(std::size_t capacity) const;
  ReplayResult Belady(std::size_t capacity) const;
  // The largest number of neurons that any `window` consecutive tokens use.
  std::size_t LargestUnion(int window) const;

  const store::Trace& trace_;
  const Options options_;
  const std::size_t entries_;
  std::vector<std::uint32_t> uses_;         // entries in order
  std::vector<std::uint64_t> token_begin_;  // [tokens + 1] into uses_
  std::vector<std::uint32_t> next_;         // [uses] position of the entry's next use
};

}  // namespace thermocline::offline
