// A set of numbers below a bound with fast access to the largest: a tree of bits, in which each bit
// is set if any of the 64 below it is.
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

namespace thermocline::offline {

class PositionSet {
 public:
  explicit PositionSet(std::size_t bound) {
    do {
      bound = (bound + 63) / 64;
      levels_.emplace_back(bound);
    } while (bound > 1);
  }

  void Insert(std::size_t value) {
    for (auto& level : levels_) {
      std::uint64_t& word = level[value / 64];
      const bool had = word != 0;
      word |= std::uint64_t{1} << (value % 64);
      if (had) return;
      value /= 64;
    }
  }
  void Erase(std::size_t value) {
    for (auto& level : levels_) {
      std::uint64_t& word = level[value / 64];
      word &= ~(std::uint64_t{1} << (value % 64));
      if (word != 0) return;
      value /= 64;
    }
  }
  bool empty() const { return levels_.back()[0] == 0; }
  // Requires: not empty.
  std::size_t Largest() const {
    std::size_t at = 0;
    for (auto level = levels_.rbegin(); level != levels_.rend(); ++level)
      at = 64 * at + 63 - std::countl_zero((*level)[at]);
    return at;
  }

 private:
  std::vector<std::vector<std::uint64_t>> levels_;  // the numbers themselves first
};

}  // namespace thermocline::offline
