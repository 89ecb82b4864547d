// The merging loop of both BPE families: repeatedly joins the neighbouring pair with the best rank.
#pragma once

#include <cstddef>
#include <queue>
#include <string_view>
#include <vector>

#include "engine/base/bytes.h"
#include "engine/base/index.h"
#include "engine/base/interruption.h"

namespace thermocline::text {

struct Symbol {
  std::string_view text;  // empty once merged into its left neighbour
  int id = -1;            // token, or -1
  int prev = -1, next = -1;
};

// The result of joining two symbols.
struct Merge {
  bool possible = false;
  double rank = 0;  // lower joins first; equal ranks join from the left
  int id = -1;      // token of the joined text
};

// Iterations between two checks of base::Interrupted, some 0.2 ms.
inline constexpr std::size_t kTurnsUnasked = 1024;
// Symbols made between two checks, some 0.5 ms.
inline constexpr std::size_t kSymbolsUnasked = 32 << 10;

// Merges `symbols`, a chain by prev and next with consecutive texts. `find(left, right)` returns
// the Merge of two symbols. O(n log n) look-ups; ends early if interrupted.
template <typename Find>
void MergeSymbols(std::vector<Symbol>& symbols, const Find& find) {
  struct Pair {
    double rank;
    int left, right;
    std::size_t length;  // of both texts when the pair was found, to detect stale pairs
    int id;
    bool operator<(const Pair& other) const {
      return rank > other.rank || (rank == other.rank && left > other.left);
    }
  };
  std::priority_queue<Pair> queue;
  const auto add = [&](int left, int right) {
    if (left < 0 || right < 0) return;
    const Symbol &a = symbols[left], &b = symbols[right];
    const Merge merge = find(a, b);
    if (merge.possible)
      queue.push({merge.rank, left, right, a.text.size() + b.text.size(), merge.id});
  };
  std::size_t turn = 0;
  const auto given_up = [&turn] { return ++turn % kTurnsUnasked == 0 && base::Interrupted(); };
  for (int i = 0; i + 1 < std::ssize(symbols); ++i) {
    if (given_up()) return;
    add(i, i + 1);
  }
  while (!queue.empty()) {
    if (given_up()) return;
    const Pair pair = queue.top();
    queue.pop();
    Symbol &left = symbols[pair.left], &right = symbols[pair.right];
    if (left.text.empty() || right.text.empty() ||
        left.text.size() + right.text.size() != pair.length)
      continue;
    left.text = std::string_view(left.text.data(), pair.length);
    left.id = pair.id;
    left.next = right.next;
    right.text = {};
    if (left.next >= 0) symbols[left.next].prev = pair.left;
    add(left.prev, pair.left);
    add(pair.left, left.next);
  }
}

// Makes the chain of UTF-8 characters (or single bytes) of `text`, with ids unset. Ends early if
// interrupted.
inline std::vector<Symbol> MakeSymbols(std::string_view text, bool single_bytes) {
  std::vector<Symbol> symbols;
  for (std::size_t pos = 0; pos < text.size();) {
    std::size_t length = 1;
    while (!single_bytes && pos + length < text.size() &&
           (base::ByteOf(text[pos + length]) & 0xC0) == 0x80)
      ++length;
    const int index = base::IntSize(symbols);
    if ((symbols.size() + 1) % kSymbolsUnasked == 0 && base::Interrupted()) break;
    symbols.push_back({text.substr(pos, length), -1, index - 1, index + 1});
    pos += length;
  }
  if (!symbols.empty()) symbols.back().next = -1;
  return symbols;
}

}  // namespace thermocline::text
