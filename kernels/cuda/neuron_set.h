// Makes a NeuronSet's list from its masks, in the last block of a launch to finish.
//
// The last block depends on timing, its output does not: every thread finds the neurons of its own
// stretch, a scan computes their places in the list, and each thread writes its own in order. The
// masks are loaded once, all of a stretch at the same time: one block does this while all others
// have ended.
#pragma once

#include "kernels/cuda/launch.h"
#include "kernels/device_sparse.h"

namespace thermocline::kernels::THERMOCLINE_CUDA {

inline constexpr int kListThreads = 128;  // of a block that may write a list

// Returns true in the last of the `blocks` with that ticket; that block sees the writes of all
// others. All threads of these blocks call it once, at their end.
__device__ inline bool IsLastOf(int blocks, std::int32_t* ticket) {
  __shared__ bool last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
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
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int sum = value;
  for (int delta = 1; delta < 32; delta *= 2) {
    const int left = __shfl_up_sync(0xFFFFFFFFU, sum, delta);
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

// Loads eight masks from `at`, a multiple of eight: two in a word, 0 beyond `neurons`.
__device__ inline uint4 LoadMasks(const std::uint16_t* masks, int at, int neurons) {
  if (at + 8 <= neurons) return *reinterpret_cast<const uint4*>(masks + at);
  unsigned each[4] = {};
  for (int i = 0; i < 8 && at + i < neurons; ++i)
    each[i / 2] |= static_cast<unsigned>(masks[at + i]) << (i % 2 * 16);
  return make_uint4(each[0], each[1], each[2], each[3]);
}

// Neighbouring neurons whose masks a thread loads at once: eight loads of 16 bytes.
inline constexpr int kListStretch = 64, kListRound = kListThreads * kListStretch;

// One bit for each of eight masks, set where the mask is not zero.
__device__ inline unsigned BitsOf(const uint4& masks) {
  const unsigned words[4] = {masks.x, masks.y, masks.z, masks.w};
  unsigned bits = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    bits |= (words[i] & 0xFFFFU) != 0 ? 1U << (2 * i) : 0U;
    bits |= (words[i] >> 16) != 0 ? 2U << (2 * i) : 0U;
  }
  return bits;
}

// Returns one bit for each of the 32 neurons from `begin` on, set where the mask is not zero.
__device__ inline unsigned FindMasks(const std::uint16_t* masks, int begin, int neurons) {
  uint4 each[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) each[i] = LoadMasks(masks, begin + 8 * i, neurons);
  unsigned bits = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) bits |= BitsOf(each[i]) << (8 * i);
  return bits;
}

// Returns one bit for each of the 32 neurons from `begin` on, set where the neuron is in the set.
// Removes neurons outside `within`, if it is given, from the set.
__device__ inline unsigned FindListed(const NeuronSet& set, const std::uint16_t* within, int begin,
                                      int neurons) {
  unsigned bits = FindMasks(set.masks, begin, neurons);
  if (within == nullptr) return bits;
  const unsigned allowed = FindMasks(within, begin, neurons);
  for (unsigned rest = bits & ~allowed; rest != 0; rest &= rest - 1)
    set.masks[begin + __ffs(rest) - 1] = 0;
  return bits & allowed;
}

// ids and starts of `set` from its masks, as FindListed says. By one block of kListThreads.
// Requires: masks are 16-byte aligned.
__device__ inline void WriteList(const NeuronSet& set, const std::uint16_t* within, int neurons) {
  int written = 0;
  for (int round = 0; round < neurons; round += kListRound) {
    const int begin = round + threadIdx.x * kListStretch;
    const unsigned bits[2] = {FindListed(set, within, begin, neurons),
                              FindListed(set, within, begin + 32, neurons)};
    int total;
    int position = written + BlockPrefix(__popc(bits[0]) + __popc(bits[1]), &total);
    if (begin < neurons && begin % kSumChunk == 0) set.starts[begin / kSumChunk] = position;
    for (int w = 0; w < 2; ++w) {
      for (unsigned rest = bits[w]; rest != 0; rest &= rest - 1)
        set.ids[position++] = begin + 32 * w + __ffs(rest) - 1;
    }
    written += total;
    __syncthreads();  // the prefix's memory is used again
  }
  if (threadIdx.x == 0) set.starts[NumSumRuns(neurons)] = written;
}

// Ends a launch that wrote `set.masks`; all its threads call it.
__device__ inline void EndWithList(const NeuronSet& set, const std::uint16_t* within, int neurons) {
  const int blocks = gridDim.x * gridDim.y * gridDim.z;
  if (IsLastOf(blocks, set.ticket)) WriteList(set, within, neurons);
}

__device__ inline int CountOf(const NeuronSet& set, int neurons) {
  return set.starts[NumSumRuns(neurons)];
}

}  // namespace thermocline::kernels::THERMOCLINE_CUDA
