// Runs and schedules the fibers.
#include "tests/cuda_emulated/fibers.h"

#include <sched.h>
#include <sys/mman.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include <boost/context/detail/fcontext.hpp>

#include "tests/cuda_emulated/builtins.h"
#include "tests/cuda_emulated/switch_stack.h"

namespace cuda_emulated {
namespace {

using boost::context::detail::fcontext_t;
using boost::context::detail::transfer_t;

constexpr std::size_t kStackBytes = 256 << 10;  // untouched pages cost no memory
constexpr std::size_t kPage = 4096;

struct Fiber {
  fcontext_t context = nullptr;
  StackNote note;  // for the sanitizers
  int thread = 0;  // within the block
  unsigned mask = 0;
  void* mine = nullptr;
};

struct Warp {
  Fiber* waiting[32] = {};  // in a collective
  void* lanes[32] = {};
  unsigned ended = 0;
};

class Machine {
 public:
  ~Machine() {
    for (const auto& fiber : fibers_) {
      fiber->note.End();
      munmap(fiber->note.bottom, kStackBytes);
    }
  }

  void Run(const Kernel& kernel) {
    kernel_ = &kernel;
    threads_ = static_cast<int>(kernel.block.x * kernel.block.y * kernel.block.z);
    blockDim = kernel.block;
    gridDim = kernel.grid;
    for (unsigned z = 0; z < kernel.grid.z; ++z) {
      for (unsigned y = 0; y < kernel.grid.y; ++y) {
        for (unsigned x = 0; x < kernel.grid.x; ++x) RunBlock({x, y, z});
      }
    }
    kernel_ = nullptr;
    shared_.reset();
  }

  void WaitAtBarrier() {
    if (++at_barrier_ == live_) return Release();
    barrier_.push_back(current_);
    SwitchAway();
  }

  int CountAtBarrier(bool predicate) {
    votes_ += predicate ? 1 : 0;
    WaitAtBarrier();
    return counted_;
  }

  void WaitForLanes(unsigned mask, void* mine, LanesMeet meet) {
    Warp& warp = warps_[static_cast<std::size_t>(current_->thread / 32)];
    const int lane = current_->thread % 32;
    if (((mask >> lane) & 1U) == 0) Die("a lane called a collective whose mask leaves it out");
    if ((mask & warp.ended) != 0) Die("a lane named by a collective's mask has ended");
    current_->mask = mask;
    warp.lanes[lane] = mine;
    warp.waiting[lane] = current_;
    for (unsigned rest = mask; rest != 0; rest &= rest - 1) {
      const Fiber* other = warp.waiting[std::countr_zero(rest)];
      if (other == nullptr) return SwitchAway();
      if (other->mask != mask) Die("lanes of a warp wait with different masks for each other");
    }
    meet(warp.lanes, mask);
    for (unsigned rest = mask; rest != 0; rest &= rest - 1) {
      const int other = std::countr_zero(rest);
      if (other != lane) runnable_.push_back(warp.waiting[other]);
      warp.waiting[other] = nullptr;
    }
  }

  int lane() const { return current_->thread % 32; }
  void* shared() { return shared_.get(); }

 private:
  void RunBlock(uint3 block) {
    blockIdx = block;
    if (kernel_->shared_bytes > 0) {
      void* shared = nullptr;  // not rounded up, so that AddressSanitizer detects overruns
      if (posix_memalign(&shared, 128, kernel_->shared_bytes) != 0) Die("no shared memory");
      shared_.reset(static_cast<std::uint8_t*>(shared));
      std::memset(shared_.get(), 0xCD, kernel_->shared_bytes);
    }
    next_ = 0;
    live_ = threads_;
    at_barrier_ = 0;
    warps_.assign(static_cast<std::size_t>((threads_ + 31) / 32), {});
    if (threads_ % 32 != 0) warps_.back().ended = ~0U << (threads_ % 32);
    SwitchTo(Idle(), &main_);
    if (live_ != 0) Die("its threads wait for threads that never come");
  }

  // A fiber's loop: thread after thread, then idle until the next block.
  static void Main(transfer_t from) {
    Machine& machine = *This();
    machine.Arrived(from);
    for (;;) {
      machine.RunThreads();
      machine.idle_.push_back(machine.current_);
      Fiber* next = machine.NextFiber(/*start=*/false);
      machine.SwitchTo(next != nullptr ? next : &machine.main_, machine.idle_.back());
    }
  }

  void RunThreads() {
    while (next_ < threads_) {
      const int thread = next_++;
      current_->thread = thread;
      SetIndex();
      kernel_->thread();
      warps_[static_cast<std::size_t>(thread / 32)].ended |= 1U << (thread % 32);
      --live_;
      if (live_ > 0 && at_barrier_ == live_) Release();
    }
  }

  void SetIndex() {
    const auto thread = static_cast<unsigned>(current_->thread);
    const dim3& size = kernel_->block;
    threadIdx = {thread % size.x, thread / size.x % size.y, thread / (size.x * size.y)};
  }

  void Release() {
    at_barrier_ = 0;
    counted_ = std::exchange(votes_, 0);
    for (Fiber* fiber : barrier_) runnable_.push_back(fiber);
    barrier_.clear();
  }

  Fiber* NextFiber(bool start) {
    if (first_ < runnable_.size()) {
      Fiber* fiber = runnable_[first_++];
      if (first_ == runnable_.size()) runnable_.clear(), first_ = 0;
      return fiber;
    }
    return start && next_ < threads_ ? Idle() : nullptr;
  }

  void SwitchAway() {
    Fiber* next = NextFiber(/*start=*/true);
    if (next == nullptr) Die("its threads wait for threads that never come");
    SwitchTo(next, current_);
    SetIndex();
  }

  void SwitchTo(Fiber* next, Fiber* from) {
    current_ = next;
    from->note.Leave(next->note);
    Arrived(boost::context::detail::jump_fcontext(next->context, from));
  }

  // Saves the context of the fiber that switched here.
  void Arrived(transfer_t transfer) {
    auto* left = static_cast<Fiber*>(transfer.data);
    left->context = transfer.fctx;
    current_->note.Enter(left->note);
  }

  Fiber* Idle() {
    if (!idle_.empty()) {
      Fiber* fiber = idle_.back();
      idle_.pop_back();
      return fiber;
    }
    void* stack = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stack == MAP_FAILED || mprotect(stack, kPage, PROT_NONE) != 0) Die("no memory for a stack");
    fibers_.push_back(std::make_unique<Fiber>());
    Fiber* fiber = fibers_.back().get();
    fiber->note.Create(stack, kStackBytes);
    fiber->context = boost::context::detail::make_fcontext(static_cast<char*>(stack) + kStackBytes,
                                                           kStackBytes, Main);
    return fiber;
  }

  [[noreturn]] void Die(const char* why) const {
    std::fprintf(stderr, "kernel launched at %s:%d, block (%u, %u, %u): %s\n", kernel_->where.file,
                 kernel_->where.line, blockIdx.x, blockIdx.y, blockIdx.z, why);
    std::abort();
  }

 public:
  static Machine* This();

 private:
  struct Free {
    void operator()(std::uint8_t* p) const { std::free(p); }
  };

  const Kernel* kernel_ = nullptr;
  std::unique_ptr<std::uint8_t, Free> shared_;
  int threads_ = 0, next_ = 0, live_ = 0, at_barrier_ = 0;
  int votes_ = 0, counted_ = 0;  // of the last barrier
  std::vector<Warp> warps_;
  std::vector<Fiber*> runnable_, barrier_, idle_;
  std::size_t first_ = 0;  // into runnable_
  std::vector<std::unique_ptr<Fiber>> fibers_;
  Fiber main_;
  Fiber* current_ = &main_;
};

Machine* Machine::This() {
  static thread_local Machine machine;
  return &machine;
}

}  // namespace

int CountAtBarrier(bool predicate) { return Machine::This()->CountAtBarrier(predicate); }
void Barrier() { Machine::This()->WaitAtBarrier(); }
void Gather(unsigned mask, void* mine, LanesMeet meet) {
  Machine::This()->WaitForLanes(mask, mine, meet);
}
int LaneId() { return Machine::This()->lane(); }
void* DynamicShared() { return Machine::This()->shared(); }
void RunKernel(const Kernel& kernel) { Machine::This()->Run(kernel); }

}  // namespace cuda_emulated

int __syncthreads_count(int predicate) { return cuda_emulated::CountAtBarrier(predicate != 0); }
int __syncthreads_or(int predicate) { return __syncthreads_count(predicate) != 0 ? 1 : 0; }
void __nanosleep(unsigned) { sched_yield(); }
void __trap() {
  std::fputs("emulated kernel: __trap\n", stderr);
  std::abort();
}
