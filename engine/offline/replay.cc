#include "engine/offline/replay.h"

#include <algorithm>
#include <array>
#include <limits>

#include "engine/base/check.h"
#include "engine/base/index.h"
#include "engine/offline/position_set.h"
#include "engine/store/heat.h"

namespace thermocline::offline {
namespace {

constexpr std::uint32_t kNever = ~std::uint32_t{0};

// Lists of entries by last use, most recent first; an entry is in one list at a time.
class RecencyLists {
 public:
  explicit RecencyLists(std::size_t entries)
      : before_(entries + kLists), after_(entries + kLists), list_(entries, -1) {
    for (std::size_t i = 0; i < kLists; ++i)
      before_[entries + i] = after_[entries + i] = static_cast<std::uint32_t>(entries + i);
  }
  int ListOf(std::uint32_t entry) const { return list_[entry]; }
  std::size_t size(int list) const { return size_[list]; }
  void PushFront(int list, std::uint32_t entry) {
    const std::uint32_t head = Head(list);
    before_[entry] = head;
    after_[entry] = after_[head];
    before_[after_[head]] = entry;
    after_[head] = entry;
    list_[entry] = static_cast<std::int8_t>(list);
    ++size_[list];
  }
  void Remove(std::uint32_t entry) {
    after_[before_[entry]] = after_[entry];
    before_[after_[entry]] = before_[entry];
    --size_[list_[entry]];
    list_[entry] = -1;
  }
  // Requires: the list is not empty.
  std::uint32_t PopBack(int list) {
    const std::uint32_t last = before_[Head(list)];
    Remove(last);
    return last;
  }

 private:
  static constexpr std::size_t kLists = 2;
  std::uint32_t Head(int list) const { return static_cast<std::uint32_t>(list_.size() + list); }
  std::vector<std::uint32_t> before_, after_;
  std::vector<std::int8_t> list_;
  std::array<std::size_t, kLists> size_{};
};

// Entries by a rank that only grows: the minimum is found through a heap of possibly outdated
// ranks.
class LeastRank {
 public:
  explicit LeastRank(std::size_t entries) : rank_(entries), cached_(entries) {}
  bool Has(std::uint32_t entry) const { return cached_[entry]; }
  std::size_t size() const { return heap_.size(); }
  void SetRank(std::uint32_t entry, std::uint64_t rank) { rank_[entry] = rank; }
  void Insert(std::uint32_t entry) {
    cached_[entry] = true;
    Push(entry);
  }
  void RemoveLeast() {
    while (true) {
      std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
      const auto [rank, entry] = heap_.back();
      heap_.pop_back();
      if (rank == rank_[entry]) {
        cached_[entry] = false;
        return;
      }
      Push(entry);
    }
  }

 private:
  void Push(std::uint32_t entry) {
    heap_.emplace_back(rank_[entry], entry);
    std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
  }
  std::vector<std::uint64_t> rank_;
  std::vector<bool> cached_;
  std::vector<std::pair<std::uint64_t, std::uint32_t>> heap_;
};

}  // namespace

std::string_view CachePolicyName(CachePolicy policy) {
  switch (policy) {
    case CachePolicy::kLru:
      return "lru";
    case CachePolicy::kLfu:
      return "lfu";
    case CachePolicy::kSlru:
      return "slru";
    case CachePolicy::kWindow:
      return "window";
    case CachePolicy::kHeat:
      return "ours";
    case CachePolicy::kBelady:
      return "belady";
  }
  return "";
}

Replay::Replay(const store::Trace& trace, const Options& options)
    : trace_(trace),
      options_(options),
      entries_(base::Area(trace.num_hidden_layers, trace.intermediate_size)) {
  CHECK(entries_ < kNever && trace.neurons.size() < kNever);
  uses_.reserve(trace.neurons.size());
  token_begin_.push_back(0);
  for (std::int64_t token = 0; token < trace.tokens; ++token) {
    for (int layer = 0; layer < trace.num_hidden_layers; ++layer) {
      const std::uint32_t first = layer * trace.intermediate_size;
      for (const std::uint32_t neuron : trace.Set(token, layer)) uses_.push_back(first + neuron);
    }
    token_begin_.push_back(uses_.size());
  }
  std::vector<std::uint32_t> last(entries_, kNever);
  next_.resize(uses_.size());
  for (std::size_t at = uses_.size(); at-- > 0;) {
    next_[at] = last[uses_[at]];
    last[uses_[at]] = static_cast<std::uint32_t>(at);
  }
}

ReplayResult Replay::Run(CachePolicy policy, std::size_t capacity) const {
  CHECK(capacity > 0);
  switch (policy) {
    case CachePolicy::kLru:
      return Lru(capacity);
    case CachePolicy::kLfu:
      return Lfu(capacity);
    case CachePolicy::kSlru:
      return Slru(capacity);
    case CachePolicy::kWindow:
      return Window(capacity);
    case CachePolicy::kHeat:
      return Heat(capacity);
    case CachePolicy::kBelady:
      return Belady(capacity);
  }
  return {};
}

template <typename Access>
ReplayResult Replay::ForUses(const Access& access) const {
  ReplayResult result;
  const auto cold =
      static_cast<std::int64_t>(options_.cold_share * static_cast<double>(trace_.tokens));
  for (std::int64_t token = 0; token < trace_.tokens; ++token) {
    HitCount& count = token < cold ? result.cold : result.warm;
    const std::size_t t = token;
    for (std::size_t at = token_begin_[t]; at < token_begin_[t + 1]; ++at) {
      ++count.needed;
      count.hits += access(uses_[at], at, token) ? 1 : 0;
    }
  }
  return result;
}

ReplayResult Replay::Lru(std::size_t capacity) const {
  RecencyLists cache(entries_);
  return ForUses([&](std::uint32_t entry, std::size_t, std::int64_t) {
    const bool hit = cache.ListOf(entry) == 0;
    if (hit) cache.Remove(entry);
    if (!hit && cache.size(0) == capacity) cache.PopBack(0);
    cache.PushFront(0, entry);
    return hit;
  });
}

ReplayResult Replay::Lfu(std::size_t capacity) const {
  LeastRank cache(entries_);
  std::vector<std::uint32_t> count(entries_);
  return ForUses([&](std::uint32_t entry, std::size_t at, std::int64_t) {
    cache.SetRank(entry, std::uint64_t{++count[entry]} << 32 | at);
    if (cache.Has(entry)) return true;
    if (cache.size() == capacity) cache.RemoveLeast();
    cache.Insert(entry);
    return false;
  });
}

ReplayResult Replay::Slru(std::size_t capacity) const {
  constexpr int kProbation = 0, kProtected = 1;
  const std::size_t protected_max = capacity - (capacity + 4) / 5;
  RecencyLists cache(entries_);
  return ForUses([&](std::uint32_t entry, std::size_t, std::int64_t) {
    const bool hit = cache.ListOf(entry) >= 0;
    if (hit) {
      cache.Remove(entry);
      cache.PushFront(protected_max > 0 ? kProtected : kProbation, entry);
      if (cache.size(kProtected) > protected_max)
        cache.PushFront(kProbation, cache.PopBack(kProtected));
      return true;
    }
    if (cache.size(kProbation) + cache.size(kProtected) == capacity)
      cache.PopBack(cache.size(kProbation) > 0 ? kProbation : kProtected);
    cache.PushFront(kProbation, entry);
    return false;
  });
}

std::size_t Replay::LargestUnion(int window) const {
  std::vector<std::uint32_t> in_window(entries_);  // uses within it
  std::size_t now = 0, largest = 0;
  const std::size_t tokens = trace_.tokens, k = window;
  for (std::size_t t = 0; t < tokens; ++t) {
    for (std::size_t at = token_begin_[t]; at < token_begin_[t + 1]; ++at)
      now += in_window[uses_[at]]++ == 0 ? 1 : 0;
    if (t >= k) {
      for (std::size_t at = token_begin_[t - k]; at < token_begin_[t - k + 1]; ++at)
        now -= --in_window[uses_[at]] == 0 ? 1 : 0;
    }
    largest = std::max(largest, now);
  }
  return largest;
}

ReplayResult Replay::Window(std::size_t capacity) const {
  int fits = 0, too_many = static_cast<int>(std::min<std::int64_t>(trace_.tokens, 1 << 30)) + 1;
  while (fits + 1 < too_many) {
    const int middle = fits + (too_many - fits) / 2;
    (LargestUnion(middle) <= capacity ? fits : too_many) = middle;
  }
  constexpr std::int64_t kLongAgo = std::numeric_limits<std::int64_t>::min() / 2;
  std::vector<std::int64_t> last(entries_, kLongAgo);
  ReplayResult result = ForUses([&](std::uint32_t entry, std::size_t, std::int64_t token) {
    const bool hit = token - last[entry] <= fits;
    last[entry] = token;
    return hit;
  });
  result.window = fits;
  return result;
}

// As in NeuronStore: the token's neurons are held, and count as uses when the token ends.
ReplayResult Replay::Heat(std::size_t capacity) const {
  store::HeatOrder order(
      {.entries = entries_, .cached_max = capacity, .half_life = options_.half_life});
  std::vector<bool> cached(entries_);
  std::int64_t now = -1;
  const auto end_token = [&] {
    const std::size_t t = now;
    for (std::size_t at = token_begin_[t]; at < token_begin_[t + 1]; ++at) {
      order.Release(uses_[at], -1);
      order.Touch(uses_[at], now);
    }
  };
  return ForUses([&](std::uint32_t entry, std::size_t, std::int64_t token) {
    if (token != now && now >= 0) end_token();
    now = token;
    order.Hold(entry, token);
    if (cached[entry]) return true;
    if (order.cached() == capacity) {
      const std::uint32_t coldest =
          options_.bypass ? order.EvictFor(entry, token) : order.Evict(token);
      if (coldest == store::HeatOrder::kNone) return false;
      cached[coldest] = false;
    }
    cached[entry] = true;
    order.Insert(entry);
    return false;
  });
}

// The cache is the set of its entries' next uses, so the farthest is the largest number.
ReplayResult Replay::Belady(std::size_t capacity) const {
  PositionSet next_uses(uses_.size());
  std::vector<bool> cached(entries_);
  std::size_t size = 0;
  return ForUses([&](std::uint32_t entry, std::size_t at, std::int64_t) {
    const bool hit = cached[entry];
    const std::uint32_t next = next_[at];
    if (hit) {
      next_uses.Erase(at);
      --size;
      cached[entry] = false;
    }
    if (next == kNever) return hit;  // not worth keeping
    if (size == capacity) {
      const std::size_t farthest = next_uses.Largest();
      if (farthest < next) return hit;
      next_uses.Erase(farthest);
      cached[uses_[farthest]] = false;
      --size;
    }
    next_uses.Insert(next);
    cached[entry] = true;
    ++size;
    return hit;
  });
}

}  // namespace thermocline::offline
