// The costs of structured output: totals since the start.
#pragma once

#include <cstdint>

namespace thermocline {

struct GrammarStats {
  std::int64_t compiled = 0, refused = 0;  // grammars that were not in the cache
  std::int64_t cache_hits = 0;
  double compile_s = 0;  // of both
  std::int64_t cache_entries = 0, cache_bytes = 0;
  std::int64_t held_bytes = 0;  // of all compiled grammars, cached or used by answers
  std::int64_t masks = 0;       // sets of allowed tokens computed, one for each sampled token
  double mask_s = 0;
  std::int64_t forced_tokens = 0;           // proposed because the grammar allowed only one text
  std::int64_t forced_accepted_tokens = 0;  // those of them that sampling chose too
};

}  // namespace thermocline
