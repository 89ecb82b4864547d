// Of several choices, those that no other beats.
#pragma once

#include <cstdint>
#include <iterator>
#include <map>
#include <vector>

namespace thermocline::placement {

// Leaves the items that none before beats or equals. Requires: sorted by hot, memory and seconds.
template <typename Item>
void KeepUnbeaten(std::vector<Item>& items) {
  std::map<std::int64_t, double> fastest;  // by memory, of the items so far; falling
  std::size_t kept = 0;
  for (const Item& item : items) {
    auto above = fastest.upper_bound(item.memory);
    if (above != fastest.begin() && std::prev(above)->second <= item.seconds) continue;
    while (above != fastest.end() && above->second >= item.seconds) above = fastest.erase(above);
    fastest[item.memory] = item.seconds;
    items[kept++] = item;
  }
  items.resize(kept);
}

}  // namespace thermocline::placement
