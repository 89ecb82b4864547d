// A running warp: its registers, the position of each lane, and its block.
#pragma once

#include <array>
#include <cstring>
#include <deque>
#include <vector>

#include "tests/ptx/memory.h"
#include "tests/ptx/module.h"
#include "tests/ptx/races.h"

namespace ptx {

inline constexpr Mask kAllLanes = ~Mask{0};

// The data of a launch, shared by its blocks.
struct Grid {
  const Kernel& kernel;
  std::array<std::uint32_t, 3> blocks, threads;
  const std::vector<std::uint8_t>& params;
  const Allocations& memory;
  Races races;
  std::string where;  // the launch's place, for findings
  std::uint32_t dynamic_shared = 0, shared_bytes = 0;

  std::uint32_t block_threads() const { return threads[0] * threads[1] * threads[2]; }
};

struct Block {
  Grid& grid;
  std::uint32_t index;  // x first
  std::vector<std::uint8_t> shared, shared_written;
  Races shared_races;
  std::vector<std::uint16_t> fences;  // by thread
  std::uint16_t barriers = 0;
};

// Copies to shared memory that a thread has started and not waited for.
struct AsyncCopy {
  std::uint64_t to = 0;
  std::uint32_t size = 0;
  std::array<std::uint8_t, 16> bytes = {};
};
struct AsyncCopies {
  std::vector<AsyncCopy> open;  // in no group yet
  std::deque<std::vector<AsyncCopy>> groups;
};

class Warp {
 public:
  enum class State { kRuns, kAtBarrier, kEnded };

  Warp(Block& block, std::uint32_t index, std::uint32_t lanes);

  // Runs up to `steps` instructions, until it must wait for others. Throws Finding.
  void Run(int steps);
  State state() const { return state_; }
  void LeaveBarrier();

  Block& block() const { return block_; }
  Grid& grid() const { return block_.grid; }
  // The slots of a place: 32 of 4 or 8 bytes.
  template <typename T>
  T* Slots(Place place) {
    return reinterpret_cast<T*>(file_.data() + place.at);
  }
  std::uint64_t Value(Place place, int lane) {
    return place.wide ? Slots<std::uint64_t>(place)[lane] : Slots<std::uint32_t>(place)[lane];
  }
  std::vector<std::uint8_t>& local(int lane) { return local_[static_cast<std::size_t>(lane)]; }
  AsyncCopies& copies(int lane) { return copies_[static_cast<std::size_t>(lane)]; }
  Moment Now(int lane) const;
  std::uint32_t ThreadOf(int lane) const { return index_ * 32 + static_cast<std::uint32_t>(lane); }
  const Instruction& instruction() const { return *now_; }

  // For instructions that move lanes.
  void End(Mask lanes);
  void WaitAtBarrier(Mask lanes);
  void Meet() { ++meetings_; }
  void Fence(int lane);
  // The start of a finding's text: kernel, line, block, thread.
  std::string Where(int lane) const;
  [[noreturn]] void Fail(int lane, const std::string& what) const;

 private:
  Mask Guarded(const Instruction& code, Mask lanes);
  // The lanes of a converging instruction that may continue now; 0: it waits for others.
  Mask Converged(const Instruction& code, Mask lanes);
  void Preset();
  bool Step(Mask& lanes, std::size_t& pc, std::size_t limit);

  Block& block_;
  std::uint32_t index_;
  std::vector<std::uint8_t> file_;
  std::array<std::vector<std::uint8_t>, 32> local_;
  std::array<AsyncCopies, 32> copies_;
  std::array<std::size_t, 32> pc_{};
  Mask alive_, blocked_ = 0, at_barrier_ = 0;
  std::uint16_t meetings_ = 0;
  State state_ = State::kRuns;
  const Instruction *now_ = nullptr, *barrier_ = nullptr;
};

// Calls `f` for every lane of `mask`.
template <typename F>
inline void ForLanes(Mask mask, const F& f) {
  if (mask == kAllLanes) {
    for (int lane = 0; lane < 32; ++lane) f(lane);
    return;
  }
  for (; mask != 0; mask &= mask - 1) f(__builtin_ctz(mask));
}

}  // namespace ptx
