// The threads of a CUDA block as fibers of one host thread.
//
// A thread runs until it ends or must wait for others: at a barrier, or where lanes of its warp
// meet. The fiber of a thread that ended takes the next one, so kernels that never wait change no
// stacks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

struct dim3;

namespace cuda_emulated {

// Called by the last lane to come, for all: lanes[i] is what lane i of `mask` handed in.
using LanesMeet = void (*)(void* const* lanes, unsigned mask);

// Waits for every thread of the block that has not ended.
void Barrier();
// The same, and returns of how many threads `predicate` was true.
int CountAtBarrier(bool predicate);
// Waits for the lanes of `mask` (which includes this one).
void Gather(unsigned mask, void* mine, LanesMeet meet);
int LaneId();
// The block's dynamic shared memory: fresh for every block, exactly as large as asked for.
void* DynamicShared();

struct Where {
  const char* file;
  int line;
};
// A kernel and the bytes of its arguments, for a runner that has the kernel in another form.
struct Call {
  const void* kernel = nullptr;
  std::vector<std::vector<std::uint8_t>> arguments;
};
struct Kernel {
  Where where;  // it was launched
  const dim3& grid;
  const dim3& block;
  std::size_t shared_bytes;
  const std::function<void()>& thread;  // one thread's work
  const Call& call;
};
// Runs all blocks, in order, on the calling thread.
void RunKernel(const Kernel& kernel);

}  // namespace cuda_emulated
