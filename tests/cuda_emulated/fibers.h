// The threads of a CUDA block as fibers of one host thread.
//
// A thread runs until it ends or must wait for others: at a barrier, or at a collective of its
// warp. The fiber of an ended thread runs the next one, so kernels that never wait never switch
// stacks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

struct dim3;

namespace cuda_emulated {

// Called once per collective, by the last lane to arrive: lanes[i] is the argument of lane i of
// `mask`.
using LanesMeet = void (*)(void* const* lanes, unsigned mask);

// Waits for every thread of the block that has not ended.
void Barrier();
// The same; returns the number of threads whose `predicate` was true.
int CountAtBarrier(bool predicate);
// Waits for the lanes of `mask` (which includes this one).
void Gather(unsigned mask, void* mine, LanesMeet meet);
int LaneId();
// The block's dynamic shared memory: new for every block, with exactly the requested size.
void* DynamicShared();

struct Where {
  const char* file;
  int line;
};
// A kernel and its arguments' bytes, for a runner that has the kernel in another form.
struct Call {
  const void* kernel = nullptr;
  std::vector<std::vector<std::uint8_t>> arguments;
};
struct Kernel {
  Where where;  // the place of the launch
  const dim3& grid;
  const dim3& block;
  std::size_t shared_bytes;
  const std::function<void()>& thread;  // the work of one thread
  const Call& call;
};
// Runs all blocks, in order, on the calling thread.
void RunKernel(const Kernel& kernel);

}  // namespace cuda_emulated
