// Counts of the uses of a mixture's experts, for metrics and status.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <numeric>
#include <span>
#include <vector>

#include "engine/base/index.h"
#include "engine/base/ratio.h"

namespace thermocline {

struct ExpertStats {
  int experts = 0, used = 0;  // per layer (E), per token (K); 0: the model is not a mixture
  // Per layer, over the decoded tokens since the start. Layers without experts have zeros.
  std::vector<std::int64_t> uses = {};  // [L, E]
  // Experts on flash: guesses made in one layer for the next layer's experts, and the correct ones.
  std::int64_t guessed = 0, guessed_right = 0;

  int layers() const { return experts > 0 ? base::IntSize(uses) / experts : 0; }
  std::span<const std::int64_t> of(int layer) const {
    return std::span(uses).subspan(base::Area(layer, experts), experts);
  }
};

inline std::int64_t AllUses(std::span<const std::int64_t> uses) {
  return std::accumulate(uses.begin(), uses.end(), std::int64_t{0});
}

// Returns the share of a layer's uses that its most used `share` of experts make; at least one
// expert. 0 without uses.
inline double HottestShare(std::span<const std::int64_t> uses, double share) {
  std::vector<std::int64_t> sorted(uses.begin(), uses.end());
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  const auto count =
      std::max<std::size_t>(1, static_cast<std::size_t>(share * base::IntSize(sorted)));
  const std::int64_t all = AllUses(uses);
  return all > 0 ? base::Ratio(AllUses(std::span(sorted).first(count)), all) : 0;
}

// Uses of the most used expert over the mean: 1 if the router spreads tokens evenly. 0 without
// uses.
inline double LoadOfMostUsed(std::span<const std::int64_t> uses) {
  const std::int64_t all = AllUses(uses);
  if (all == 0) return 0;
  return static_cast<double>(*std::max_element(uses.begin(), uses.end())) * base::IntSize(uses) /
         static_cast<double>(all);
}

}  // namespace thermocline
