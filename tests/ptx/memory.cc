#include "tests/ptx/memory.h"

#include <algorithm>

namespace ptx {

const Allocation* Allocations::Find(std::uint64_t at, std::uint64_t bytes) const {
  auto after = std::upper_bound(all_.begin(), all_.end(), at,
                                [](std::uint64_t a, const Allocation& b) { return a < b.begin; });
  if (after == all_.begin()) return nullptr;
  const Allocation& found = *--after;
  return at + bytes <= found.end ? &found : nullptr;
}

}  // namespace ptx
