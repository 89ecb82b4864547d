// A placement: the location of neurons, layers' homes and head, and the resulting time of a token.
#pragma once

#include <cstdint>
#include <vector>

namespace thermocline::placement {

struct LayerPlacement {
  bool home_hot = false;
  std::int64_t hot = 0, memory = 0, flash = 0;  // neurons: the most frequent first, in this order
  // Seconds per token, as defined in problem.h. Hot and cold run at the same time.
  double home_s = 0, hot_s = 0, cold_s = 0, sync_s = 0, flash_s = 0;
  double active = 0, active_hot = 0;  // expected active neurons per token; those computed hot

  double token_s() const { return home_s + (hot_s > cold_s ? hot_s : cold_s) + sync_s + flash_s; }
};

struct Placement {
  std::vector<LayerPlacement> layers = {};  // [L]
  bool head_hot = false;
  bool deciding_held = false;  // RAM holds the deciding rows of the neurons on flash
  double head_s = 0, switch_s = 0;
  double token_s = 0;
  std::int64_t hot_bytes = 0, memory_bytes = 0, flash_bytes = 0;
  double load_share = 0;  // hot share of a token's active neurons
  double gap = 0;         // relative bound on how much faster another may be; 0: none is

  double tokens_per_s() const { return 1 / token_s; }
};

}  // namespace thermocline::placement
