// A NeuronSet's list out of its masks, by the block of a launch that ends last.
//
// Which block that is depends on timing, what it writes does not: every thread counts the neurons
// of its own stretch, a scan says where they go, and each writes them in order.
#pragma once

#include "kernels/cuda/launch.h"
#include "kernels/device_sparse.h"

namespace thermocline::kernels::THERMOCLINE_CUDA {

inline constexpr int kListThreads = 128;  // of a block that may write a list

// Whether this block is the last of the launch; then it sees what all others wrote. All threads of
// every block call it once, at their end.
__device__ inline bool IsLastBlock(std::int32_t* ticket) {
  __shared__ bool last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    const int blocks = static_cast<int>(gridDim.x * gridDim.y * gridDim.z);
    last = atomicAdd(ticket, 1) == blocks - 1;
    if (last) *ticket = 0;
  }
  __syncthreads();
  __threadfence();
  return last;
}

// Exclusive sum over the block's threads; `total` gets the sum of all. Requires: kListThreads.
__device__ inline int BlockPrefix(int value, int* total) {
  __shared__ int warps[kListThreads / 32];
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  int sum = value;
  for (int delta = 1; delta < 32; delta *= 2) {
    const int left = __shfl_up_sync(0xFFFFFFFFU, sum, static_cast<unsigned>(delta));
    if (lane >= delta) sum += left;
  }
  if (lane == 31) warps[warp] = sum;
  __syncthreads();
  int before = 0, all = 0;
  for (int w = 0; w < kListThreads / 32; ++w) {
    before += w < warp ? warps[w] : 0;
    all += warps[w];
  }
  *total = all;
  return before + sum - value;
}

// Eight masks at a multiple of eight.
__device__ inline void LoadMasks(const std::uint16_t* masks, int at, int neurons,
                                 std::uint16_t out[8]) {
  if (at + 8 <= neurons) {
    const uint4 words = *reinterpret_cast<const uint4*>(masks + at);
    const unsigned each[4] = {words.x, words.y, words.z, words.w};
    for (int i = 0; i < 8; ++i) out[i] = static_cast<std::uint16_t>(each[i / 2] >> (i % 2 * 16));
    return;
  }
  for (int i = 0; i < 8; ++i) out[i] = at + i < neurons ? masks[at + i] : 0;
}

// ids and starts of `set` from its masks; neurons that are not in `within`, if it is there, leave
// the set. By one block of kListThreads. Requires: masks are 16-byte aligned.
__device__ inline void WriteList(const NeuronSet& set, const std::uint16_t* within, int neurons) {
  const int stretch = (neurons + kListThreads * 8 - 1) / (kListThreads * 8) * 8;
  const int begin = static_cast<int>(threadIdx.x) * stretch;
  const int end = begin + stretch < neurons ? begin + stretch : neurons;
  std::uint16_t masks[8] = {}, allowed[8] = {};
  int mine = 0;
  for (int at = begin; at < end; at += 8) {
    LoadMasks(set.masks, at, neurons, masks);
    if (within != nullptr) LoadMasks(within, at, neurons, allowed);
    for (int i = 0; i < 8 && at + i < end; ++i) {
      if (within != nullptr && allowed[i] == 0) {
        set.masks[at + i] = 0;
      } else {
        mine += masks[i] != 0 ? 1 : 0;
      }
    }
  }
  int total;
  int position = BlockPrefix(mine, &total);
  for (int at = begin; at < end; at += 8) {
    LoadMasks(set.masks, at, neurons, masks);
    for (int i = 0; i < 8 && at + i < end; ++i) {
      if ((at + i) % kSumChunk == 0) set.starts[(at + i) / kSumChunk] = position;
      if (masks[i] != 0) set.ids[position++] = at + i;
    }
  }
  if (threadIdx.x == 0) set.starts[NumSumRuns(neurons)] = total;
}

// What a launch that wrote `set.masks` ends with, in all its threads.
__device__ inline void EndWithList(const NeuronSet& set, const std::uint16_t* within, int neurons) {
  if (IsLastBlock(set.ticket)) WriteList(set, within, neurons);
}

__device__ inline int CountOf(const NeuronSet& set, int neurons) {
  return set.starts[NumSumRuns(neurons)];
}

}  // namespace thermocline::kernels::THERMOCLINE_CUDA
