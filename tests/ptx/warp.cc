#include "tests/ptx/warp.h"

#include <algorithm>

namespace ptx {

Warp::Warp(Block& block, std::uint32_t index, std::uint32_t lanes)
    : block_(block),
      index_(index),
      file_(block.grid.kernel.register_bytes, 0xEE),
      alive_(lanes == 32 ? kAllLanes : (Mask{1} << lanes) - 1) {
  if (block.grid.kernel.local_bytes > 0) {
    for (auto& memory : local_) memory.assign(block.grid.kernel.local_bytes, 0xEE);
  }
  Preset();
}

void Warp::Preset() {
  const Grid& grid = block_.grid;
  const auto& [tx, ty, tz] = grid.threads;
  const auto& [bx, by, bz] = grid.blocks;
  for (const ptx::Preset& preset : grid.kernel.presets) {
    for (int lane = 0; lane < 32; ++lane) {
      const std::uint32_t thread = ThreadOf(lane);
      const auto value = [&]() -> std::uint64_t {
        switch (preset.special) {
          case Special::kNone:
            return preset.value;
          case Special::kTidX:
            return thread % tx;
          case Special::kTidY:
            return thread / tx % ty;
          case Special::kTidZ:
            return thread / tx / ty;
          case Special::kNtidX:
            return tx;
          case Special::kNtidY:
            return ty;
          case Special::kNtidZ:
            return tz;
          case Special::kCtaidX:
            return block_.index % bx;
          case Special::kCtaidY:
            return block_.index / bx % by;
          case Special::kCtaidZ:
            return block_.index / bx / by;
          case Special::kNctaidX:
            return bx;
          case Special::kNctaidY:
            return by;
          case Special::kNctaidZ:
            return bz;
          case Special::kLane:
            return static_cast<std::uint64_t>(lane);
          case Special::kWarp:
            return index_;
          case Special::kDynamicShared:
            return grid.dynamic_shared;
        }
        return 0;
      }();
      if (preset.place.wide)
        Slots<std::uint64_t>(preset.place)[lane] = value;
      else
        Slots<std::uint32_t>(preset.place)[lane] = static_cast<std::uint32_t>(value);
    }
  }
}

Moment Warp::Now(int lane) const {
  const std::uint32_t thread = ThreadOf(lane);
  return {block_.index * grid().block_threads() + thread, block_.barriers, meetings_,
          block_.fences[thread]};
}

std::string Warp::Where(int lane) const {
  const Grid& grid = block_.grid;
  return grid.where + ", block " + std::to_string(block_.index) + ", thread " +
         std::to_string(ThreadOf(lane)) + ", line " + std::to_string(now_->line) + " '" +
         std::string(now_->text) + "'";
}

void Warp::Fail(int lane, const std::string& what) const {
  throw Finding(what + ": " + Where(lane));
}

void Warp::Fence(int lane) {
  block_.grid.races.Fence(Now(lane));
  ++block_.fences[ThreadOf(lane)];
}

void Warp::End(Mask lanes) {
  if (at_barrier_ != 0)
    Fail(__builtin_ctz(lanes), "lanes that end while others of their warp wait at a barrier");
  alive_ &= ~lanes;
  if (alive_ == 0) state_ = State::kEnded;
}

void Warp::WaitAtBarrier(Mask lanes) {
  if (at_barrier_ != 0 && barrier_ != now_)
    Fail(__builtin_ctz(lanes), "lanes of one warp that wait at different barriers");
  barrier_ = now_;
  at_barrier_ |= lanes;
  if ((alive_ & ~at_barrier_) == 0) state_ = State::kAtBarrier;
}

void Warp::LeaveBarrier() {
  at_barrier_ = 0;
  state_ = State::kRuns;
}

Mask Warp::Guarded(const Instruction& code, Mask lanes) {
  if (!code.guarded) return lanes;
  const auto* guard = Slots<std::uint32_t>(code.guard);
  Mask out = 0;
  ForLanes(lanes, [&](int lane) {
    if ((guard[lane] != 0) != code.guard_not) out |= Mask{1} << lane;
  });
  return out;
}

Mask Warp::Converged(const Instruction& code, Mask lanes) {
  // Without an operand for it, all lanes of the warp must arrive (mma, .aligned).
  const int first = __builtin_ctz(lanes);
  Mask wanted = code.detail == -1 ? kAllLanes : static_cast<Mask>(Value(code.from.back(), first));
  ForLanes(lanes, [&](int lane) {
    const Mask mine =
        code.detail == -1 ? kAllLanes : static_cast<Mask>(Value(code.from.back(), lane));
    if ((mine >> lane & 1U) == 0) Fail(lane, "a lane that its own mask leaves out");
    if (mine != wanted) Fail(lane, "lanes that meet with different masks");
  });
  if ((wanted & ~alive_) != 0) Fail(first, "a mask with lanes that have ended");
  return (wanted & ~lanes) == 0 ? wanted & lanes : 0;
}

void Warp::Run(int steps) {
  const auto& code = grid().kernel.code;
  while (steps > 0 && state_ == State::kRuns) {
    // Runs the lanes that are furthest behind, until they meet others.
    const Mask ready = alive_ & ~at_barrier_ & ~blocked_;
    if (ready == 0) {
      now_ = &code[pc_[static_cast<std::size_t>(__builtin_ctz(alive_ & ~at_barrier_))]];
      Fail(__builtin_ctz(alive_ & ~at_barrier_),
           "lanes that wait for others of their warp, which do not come");
    }
    std::size_t pc = code.size(), limit = code.size();
    ForLanes(ready, [&](int lane) { pc = std::min(pc, pc_[static_cast<std::size_t>(lane)]); });
    Mask lanes = 0;
    ForLanes(alive_ & ~at_barrier_, [&](int lane) {
      const std::size_t at = pc_[static_cast<std::size_t>(lane)];
      if (at == pc)
        lanes |= Mask{1} << lane;
      else if (at > pc)
        limit = std::min(limit, at);
    });
    do {
      if (pc >= code.size()) Fail(__builtin_ctz(lanes), "the end of the code without ret");
      --steps;
    } while (Step(lanes, pc, limit) && steps > 0);
    ForLanes(lanes, [&](int lane) { pc_[static_cast<std::size_t>(lane)] = pc; });
  }
}

// Returns false if lanes diverged, wait, ended or met others.
bool Warp::Step(Mask& lanes, std::size_t& pc, std::size_t limit) {
  const Instruction& code = grid().kernel.code[pc];
  now_ = &code;
  const Mask active = Guarded(code, lanes);
  if (code.target >= 0) {
    const auto target = static_cast<std::size_t>(code.target);
    const Mask stay = lanes & ~active;
    if (active != 0 && stay != 0) {
      ForLanes(active, [&](int lane) { pc_[static_cast<std::size_t>(lane)] = target; });
      lanes = stay;
      ++pc;
      return false;
    }
    pc = stay != 0 ? pc + 1 : target;
    return pc < limit;
  }
  if (code.converges && active != 0) {
    if (Converged(code, active) == 0) {
      blocked_ |= active;  // until the others arrive here
      return false;
    }
    blocked_ &= ~active;
  }
  const Mask before = alive_ & ~at_barrier_;
  if (active != 0) code.run(code, *this, active);
  ++pc;
  if ((alive_ & ~at_barrier_) != before) {
    ForLanes(lanes, [&](int lane) { pc_[static_cast<std::size_t>(lane)] = pc; });
    lanes &= alive_ & ~at_barrier_;
    return false;
  }
  return pc < limit;
}

}  // namespace ptx
