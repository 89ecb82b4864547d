// A run's listed rows and their h on their way through shared memory, 32 rows a step, for
// sum_row_tiles.cu.
//
// A block has one run of 1,024 neurons, 256 columns and all tokens. It first finds the addresses of
// the run's rows, so that later copies do not wait; then the copies run some steps ahead of the
// sums. Lane 4g + t of a warp takes rows t, t + 4, ... of a step and tokens g and g + 8.
#pragma once

#include "kernels/cuda/row_tile.h"

namespace thermocline::kernels::THERMOCLINE_CUDA {

inline constexpr int kStepRows = 32, kStepTokens = kSparseTokensMax;
inline constexpr int kStepThreads = 32 * kTileBlocks;  // of a block

// The part of its rows that a step holds: kPieces copies of 16 bytes.
template <int kPieces, int kStride>
struct alignas(16) StepOf {
  static constexpr int kCopies = kPieces;
  float h[kStepTokens][kStepRows];  // at Place
  std::uint8_t rows[kStepRows][kStride];
};

template <DType type>
struct RunShared {
  static constexpr int kPieces = RowStretch<type>::kPieces;
  // A stride that puts the words of four neighbouring rows into different banks.
  using Whole = StepOf<kPieces, (PanelTraits<type>::kIsQ8 ? kPieces + 1 : kPieces) * 16>;
  using Heads = StepOf<1, 16>;  // scales
  static constexpr int kStages = kPieces > 12 ? 3 : 4, kHeadStages = 8;
  static_assert(RowStretch<type>::kAligned && RowStretch<type>::kLevels >= 16);
  union {
    Whole whole[kStages];
    Heads heads[kHeadStages];
  };
  std::int32_t slots[kSumChunk];
  std::uint16_t ids[kSumChunk];  // in the run
};

// Returns the index of a row's h among the h of a token: rows t, t + 4, t + 8, t + 12 of a half lie
// together, and tokens begin at different banks.
__device__ __forceinline__ int FourPlace(int token, int half, int t) {
  return 4 * ((4 * half + t) ^ ((token & 1) << 2 | (token >> 1 & 3)));
}
__device__ __forceinline__ int Place(int token, int row) {
  return FourPlace(token, row / 16, row % 4) + row % 16 / 4;
}

struct StepLane {
  int lane, g, t, warp;
  __device__ StepLane() {
    lane = threadIdx.x % 32;
    warp = threadIdx.x / 32;
    g = lane / 4;
    t = lane % 4;
  }
};

// Starts copying rows 32 * step... of the run's `count`.
template <DType type, typename StageOf>
__device__ __forceinline__ void StartStep(const DeviceSumRowsParams& p, int count, int step,
                                          const RunShared<type>& shared, StageOf& stage) {
  const int thread = threadIdx.x;
  const std::uint8_t* column = p.weights.data + blockIdx.x * RowStretch<type>::kBytes;
#pragma unroll
  for (int u = 0; u < (kStepRows * StageOf::kCopies + kStepThreads - 1) / kStepThreads; ++u) {
    const int i = u * kStepThreads + thread;
    if (i >= kStepRows * StageOf::kCopies) break;
    const int row = i / StageOf::kCopies, piece = i % StageOf::kCopies, k = kStepRows * step + row;
    const bool there = k < count;
    const int slot = there ? shared.slots[k] : 0;
    ptx::CopyAsync<16>(&stage.rows[row][16 * piece],
                       column + slot * SizesOf<type>::RowBytes(p.weights.cols) + 16 * piece,
                       there ? 16 : 0);
  }
  const float* h = p.h + blockIdx.y * kSumChunk;
#pragma unroll
  for (int u = 0; u < kStepRows * kStepTokens / kStepThreads; ++u) {
    const int i = u * kStepThreads + thread;
    const int row = i % kStepRows, token = i / kStepRows, k = kStepRows * step + row;
    const bool there = k < count && token < p.tokens;
    const std::ptrdiff_t at = there ? StartOf(token, p.h_stride) + shared.ids[k] : 0;
    ptx::CopyAsync<4>(&stage.h[token][Place(token, row)], h + at, there ? 4 : 0);
  }
}

// Calls body(stage) for each 32 rows of the run, in order. `stages` may be used again after it.
template <DType type, int kStages, typename StageOf, typename Body>
__device__ __forceinline__ void ForSteps(const DeviceSumRowsParams& p, int count,
                                         const RunShared<type>& shared, StageOf (&stages)[kStages],
                                         const Body& body) {
  const int steps = (count + kStepRows - 1) / kStepRows;
  for (int step = 0; step < kStages - 1; ++step) {
    if (step < steps) StartStep(p, count, step, shared, stages[step]);
    ptx::CommitCopies();
  }
  for (int step = 0; step < steps; ++step) {
    ptx::WaitForCopies<kStages - 2>();
    __syncthreads();  // all copies have arrived, and no thread still reads the previous stage
    const int next = step + kStages - 1;
    if (next < steps) StartStep(p, count, next, shared, stages[next % kStages]);
    ptx::CommitCopies();
    body(stages[step % kStages]);
  }
  __syncthreads();
}

// Calls body(half, r, factors, h) for the four rows t, t + 4, ... of each half of a step's rows and
// tokens g + 8 r. `factor`: of row `lane`.
template <typename StageOf, typename Body>
__device__ __forceinline__ void ForFours(const StageOf& stage, float factor, const StepLane& of,
                                         const Body& body) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float factors[4];
#pragma unroll
    for (int j = 0; j < 4; ++j)
      factors[j] = __shfl_sync(0xFFFFFFFFU, factor, 16 * half + of.t + 4 * j);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int token = of.g + 8 * r;
      const auto h =
          *reinterpret_cast<const float4*>(&stage.h[token][FourPlace(token, half, of.t)]);
      body(half, r, factors, {h.x, h.y, h.z, h.w});
    }
  }
}

// Finds the addresses of the run's rows. Returns their number.
template <DType type>
__device__ __forceinline__ int FindRows(const DeviceSumRowsParams& p, RunShared<type>& shared) {
  const int begin = p.neurons.starts[blockIdx.y], count = p.neurons.starts[blockIdx.y + 1] - begin;
  for (int k = threadIdx.x; k < count; k += kStepThreads) {
    const int id = p.neurons.ids[begin + k];
    shared.slots[k] = p.weights.slots != nullptr ? p.weights.slots[id] : id;
    shared.ids[k] = static_cast<std::uint16_t>(id % kSumChunk);
  }
  __syncthreads();
  return count;
}

}  // namespace thermocline::kernels::THERMOCLINE_CUDA
