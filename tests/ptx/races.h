// Races: two accesses of the same bytes, one of them a write, that are not ordered.
//
// Within a block __syncthreads orders the accesses before and after it, within a warp __syncwarp.
// Between blocks the order needs a fence, then an atomic operation, on one side; an atomic
// operation on the same word, then a fence, on the other; and barriers for the blocks' other
// threads. So a kernel without fences has no order between its blocks. Source: the happens-before
// checks of GPUVerify and gpuocelot; causality order of the PTX ISA 8.10.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

namespace ptx {

// A thread of the launch at a certain time.
struct Moment {
  std::uint32_t thread = 0;    // within the launch, blocks in order
  std::uint16_t barriers = 0;  // the block's barriers so far
  std::uint16_t meetings = 0;  // the warp's collectives so far
  std::uint16_t fences = 0;    // the thread's fences so far
};

struct AccessKind {
  bool write = false, atomic = false;
};

class Races {
 public:
  explicit Races(std::uint32_t block_threads) : block_threads_(block_threads) {}

  // Empty, or the conflicting access. `key`: unique for each byte of a space.
  std::string Check(std::uint64_t key, std::uint32_t bytes, AccessKind kind, const Moment& now);
  void Fence(const Moment& now);  // called before the thread's fences count up
  // An atomic operation on `key`: publishes the accesses that the block's fences cover, and takes
  // those that others published there. `fences`: of the block's threads so far.
  void Atomic(std::uint64_t key, const Moment& now, const std::vector<std::uint16_t>& fences);

 private:
  struct Word {
    Moment write, read;
    std::uint8_t written = 0, was_read = 0;  // bytes
    bool any = false, atomic = false;        // atomic: the write
    // The readers so far: one thread; several of a warp; of a block; of several blocks.
    enum Readers : std::uint8_t { kOne, kWarp, kBlock, kBlocks } readers = kOne;
  };
  struct Published {
    Moment by;
    std::uint16_t fence_barriers;  // the block's barriers at the thread's last fence
    std::vector<std::uint16_t> fences;
  };
  struct Taken {
    Moment by;
    std::vector<std::shared_ptr<const Published>> all;
  };
  static constexpr std::uint32_t kPageWords = 1024;
  using Page = std::vector<Word>;

  std::uint32_t BlockOf(std::uint32_t thread) const { return thread / block_threads_; }
  std::uint32_t WarpOf(std::uint32_t thread) const {
    return thread % block_threads_ / 32 + BlockOf(thread) * ((block_threads_ + 31) / 32);
  }
  bool Ordered(const Moment& before, Word::Readers of, const Moment& now) const;
  bool OrderedBetweenBlocks(const Moment& before, const Moment& now) const;
  Word& At(std::uint64_t word);

  std::uint32_t block_threads_;
  std::unordered_map<std::uint64_t, Page> pages_;
  std::uint64_t last_page_ = ~std::uint64_t{0};
  Page* last_ = nullptr;
  std::unordered_map<std::uint64_t, std::vector<std::shared_ptr<const Published>>> published_;
  std::unordered_map<std::uint32_t, std::vector<Taken>> taken_;      // by block
  std::unordered_map<std::uint32_t, std::uint16_t> fence_barriers_;  // by thread
};

}  // namespace ptx
