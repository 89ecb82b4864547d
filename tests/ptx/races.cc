#include "tests/ptx/races.h"

namespace ptx {

bool Races::Ordered(const Moment& before, Word::Readers of, const Moment& now) const {
  if (of == Word::kBlocks) return false;
  if (BlockOf(before.thread) != BlockOf(now.thread)) return OrderedBetweenBlocks(before, now);
  if (before.barriers < now.barriers) return true;
  if (of == Word::kOne && before.thread == now.thread) return true;
  return of <= Word::kWarp && WarpOf(before.thread) == WarpOf(now.thread) &&
         before.meetings < now.meetings;
}

bool Races::OrderedBetweenBlocks(const Moment& before, const Moment& now) const {
  const auto mine = taken_.find(BlockOf(now.thread));
  if (mine == taken_.end()) return false;
  const auto fenced = fence_barriers_.find(now.thread);
  if (fenced == fence_barriers_.end()) return false;
  for (const Taken& taken : mine->second) {
    // The thread that took it, or its block after a barrier; and a fence after that.
    const bool reached = taken.by.thread == now.thread ? now.fences > taken.by.fences
                                                       : taken.by.barriers < now.barriers &&
                                                             taken.by.barriers < fenced->second;
    if (!reached) continue;
    for (const auto& from : taken.all) {
      if (BlockOf(from->by.thread) != BlockOf(before.thread)) continue;
      const bool own = from->by.thread == before.thread;
      const bool known = own || before.barriers < from->by.barriers;
      const bool fence = before.fences < from->fences[before.thread % block_threads_] ||
                         before.barriers < from->fence_barriers;
      if (known && fence) return true;
    }
  }
  return false;
}

Races::Word& Races::At(std::uint64_t word) {
  const std::uint64_t page = word / kPageWords;
  if (page != last_page_) {
    Page& found = pages_[page];
    if (found.empty()) found.resize(kPageWords);
    last_page_ = page;
    last_ = &found;
  }
  return (*last_)[word % kPageWords];
}

std::string Races::Check(std::uint64_t key, std::uint32_t bytes, AccessKind kind,
                         const Moment& now) {
  for (std::uint64_t word = key / 4; word <= (key + bytes - 1) / 4; ++word) {
    std::uint8_t mask = 0;
    for (std::uint64_t byte = 0; byte < 4; ++byte)
      if (word * 4 + byte >= key && word * 4 + byte < key + bytes)
        mask = static_cast<std::uint8_t>(mask | 1U << byte);
    Word& at = At(word);
    const bool both_atomic = kind.atomic && at.atomic;
    if ((at.written & mask) != 0 && !both_atomic && !Ordered(at.write, Word::kOne, now))
      return kind.write ? "two writes" : "a read of what another thread wrote";
    if (kind.write) {
      if ((at.was_read & mask) != 0 && !kind.atomic && !Ordered(at.read, at.readers, now))
        return "a write of what another thread reads";
      at.write = now;
      at.written = static_cast<std::uint8_t>(
          (at.written & ~mask) != 0 && at.write.thread == now.thread ? at.written | mask : mask);
      at.atomic = kind.atomic;
      at.was_read = static_cast<std::uint8_t>(at.was_read & ~mask);
      continue;
    }
    if (kind.atomic) continue;
    if (at.was_read == 0 || Ordered(at.read, at.readers, now)) {
      at.read = now;
      at.readers = Word::kOne;
    } else if (at.read.thread != now.thread || at.readers != Word::kOne) {
      const Word::Readers both = BlockOf(at.read.thread) != BlockOf(now.thread) ? Word::kBlocks
                                 : WarpOf(at.read.thread) != WarpOf(now.thread) ? Word::kBlock
                                                                                : Word::kWarp;
      at.readers = std::max(at.readers, both);
      at.read = now;
    }
    at.was_read = static_cast<std::uint8_t>(at.was_read | mask);
  }
  return {};
}

void Races::Fence(const Moment& now) {
  // A fence orders the thread's accesses, and those that barriers ordered before it.
  fence_barriers_[now.thread] = now.barriers;
}

void Races::Atomic(std::uint64_t key, const Moment& now, const std::vector<std::uint16_t>& fences) {
  auto& there = published_[key];
  if (!there.empty()) taken_[BlockOf(now.thread)].push_back({now, there});
  const auto fenced = fence_barriers_.find(now.thread);
  if (fenced == fence_barriers_.end()) return;
  there.push_back(std::make_shared<const Published>(Published{now, fenced->second, fences}));
}

}  // namespace ptx
