// The down projection's sum over neuron-major rows in integers: steps 1 and 2 of SharedSum
// (rows.h), and all three in one launch where there is one partition.
//
// A block has one run of 1,024 neurons, one token, and 256 columns: eight blocks of 32, whose bytes
// are one stretch of 144 (Q4_0) in every row. Eight neighbouring threads take a row each block, so
// the loads are whole. Step 2 takes four rows at a time: their coefficients' bytes are one word, so
// one byte dot product adds four rows to a column; the words of levels are transposed for it. Sums
// of integers need no order, so threads add theirs in shared memory as they end.
#include "kernels/cuda/finish_sum.h"
#include "kernels/cuda/neuron_set.h"
#include "kernels/cuda/row_block.h"
#include "kernels/cuda/sparse_ops.h"
#include "kernels/cuda/type_choice.h"
#include "kernels/quantize.h"

namespace thermocline::kernels::THERMOCLINE_CUDA {
namespace {

constexpr int kThreads = 256, kSlices = kThreads / 8;  // rows, or fours of rows, at once

// The place where a block of threads works.
struct Place {
  int run, token;
  int begin, end;          // the run's rows in the list
  int block, in_group;     // block of 32 columns of this thread
  int slice;               // the thread's slice of the rows
  bool there;              // the row has that block
  std::ptrdiff_t numbers;  // index of the thread's block in [T, R, D / 32]
};

__device__ Place PlaceOf(const DeviceSumRowsParams& p) {
  Place at{};
  const int blocks = p.weights.cols / 32, runs = NumSumRuns(p.weights.neurons);
  at.run = blockIdx.y;
  at.token = blockIdx.z;
  at.begin = p.neurons.starts[at.run];
  at.end = p.neurons.starts[at.run + 1];
  at.in_group = threadIdx.x % 8;
  at.slice = threadIdx.x / 8;
  at.block = blockIdx.x * 8 + at.in_group;
  at.there = at.block < blocks;
  at.numbers = (StartOf(at.token, runs) + at.run) * blocks + at.block;
  return at;
}

// Rows taken at once: their dependent loads (ids, then slots and h, then the rows' bytes) are
// waited for once for all rows.
constexpr int kRows = 4;

struct Rows {
  const std::uint8_t* data[kRows];
  float h[kRows];  // 0: not to be added
};

// Rows k, k + stride, ... before `end`. Rows that are not added share the first row's bytes, so
// that they cost no reads.
template <DType type>
__device__ __forceinline__ Rows RowsAt(const DeviceSumRowsParams& p, const Place& at, int k,
                                       int stride) {
  int ids[kRows], slots[kRows];
#pragma unroll
  for (int i = 0; i < kRows; ++i) ids[i] = p.neurons.ids[min(k + i * stride, at.end - 1)];
  Rows out;
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    slots[i] = p.weights.slots != nullptr ? p.weights.slots[ids[i]] : ids[i];
    out.h[i] = p.h[StartOf(at.token, p.h_stride) + ids[i]];
    if (k + i * stride >= at.end) out.h[i] = 0;
  }
#pragma unroll
  for (int i = 0; i < kRows; ++i)
    out.data[i] =
        p.weights.data + (out.h[i] != 0 ? slots[i] : 0) * SizesOf<type>::RowBytes(p.weights.cols);
  return out;
}

// a and m of a row's block: weight = a * level + m.
template <DType type>
__device__ float2 ScalesOf(const DeviceSumRowsParams& p, const Place& at, const std::uint8_t* row) {
  float d, m;
  int scale, second;
  LoadRowScales<type>(row, at.block, p.weights.cols / 32, p.weights.cols % 256 == 0, &d, &m, &scale,
                      &second);
  if constexpr (RowTraits<type>::kIsK) return make_float2(Scaled(d, scale), Scaled(-m, second));
  return make_float2(d, m);
}

// The largest |h a| of the thread's block of 32 columns, in all threads; it is written, too.
template <DType type>
__device__ float LargestOf(const DeviceSumRowsParams& p, const Place& at) {
  __shared__ unsigned largest[8];
  if (threadIdx.x < 8) largest[threadIdx.x] = 0;
  __syncthreads();
  float mine = 0;
  for (int k = at.begin + at.slice; at.there && k < at.end; k += kRows * kSlices) {
    const Rows rows = RowsAt<type>(p, at, k, kSlices);
    float a[kRows];
#pragma unroll
    for (int i = 0; i < kRows; ++i) a[i] = ScalesOf<type>(p, at, rows.data[i]).x;
#pragma unroll
    for (int i = 0; i < kRows; ++i)
      if (rows.h[i] != 0) mine = fmaxf(mine, fabsf(rows.h[i] * a[i]));
  }
  // Numbers that are not negative have the order of their bits.
  if (mine > 0) atomicMax(&largest[at.in_group], __float_as_uint(mine));
  __syncthreads();
  const float limit = __uint_as_float(largest[at.in_group]);
  if (at.there && at.slice == 0) p.maxima[at.numbers] = limit;
  return at.there ? limit : 0;
}

// 32 columns' sums of a thread, of levels, and of coefficients: for the levels' offset.
struct Sums {
  int high[32], low[32];
  int high_all, low_all;
};

// Adds rows [k, k + 4), as far as they are before at.end.
template <DType type>
__device__ void AddFour(const DeviceSumRowsParams& p, const Place& at, int k, float inverse,
                        Sums& sums) {
  const Rows rows = RowsAt<type>(p, at, k, 1);
  std::uint32_t words[kRows][RowTraits<type>::kWords];
  float a[kRows];
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    LoadWords<RowTraits<type>::kWords, true>(
        RowWords<type>(rows.data[i], at.block, p.weights.cols / 32), p.weights.cols % 256 == 0,
        words[i]);
    a[i] = ScalesOf<type>(p, at, rows.data[i]).x;
  }
  std::uint32_t high = 0, low = 0;
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const int q = rows.h[i] != 0 ? __float2int_rn(rows.h[i] * a[i] * inverse) : 0;
    const int q_high = (q + 128) >> 8;
    high |= (q_high & 255U) << (8 * i);
    low |= ((q - 256 * q_high) & 255U) << (8 * i);
  }
  std::uint32_t levels[4][8];
#pragma unroll
  for (int i = 0; i < 4; ++i) Levels<type>(words[i], levels[i]);
  sums.high_all = Dot4(high, 0x01010101, sums.high_all);
  sums.low_all = Dot4(low, 0x01010101, sums.low_all);
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    const std::uint32_t in[4] = {levels[0][j], levels[1][j], levels[2][j], levels[3][j]};
    std::uint32_t columns[4];
    Transpose(in, columns);
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const int four = columns[c];
      sums.high[4 * j + c] = Dot4(high, four, sums.high[4 * j + c]);
      sums.low[4 * j + c] = Dot4(low, four, sums.low[4 * j + c]);
    }
  }
}

// The run's sums of this block's columns, written.
template <DType type>
__device__ void SumRun(const DeviceSumRowsParams& p, const Place& at, float limit) {
  // [column of the block, block]: neighbouring threads add to neighbouring banks.
  __shared__ int high[256], low[256];
  high[threadIdx.x] = low[threadIdx.x] = 0;
  __syncthreads();
  if (limit > kActivationMin) {
    Sums sums = {};
    for (int k = at.begin + 4 * at.slice; k < at.end; k += 4 * kSlices)
      AddFour<type>(p, at, k, kCoefficientMax / limit, sums);
    if (at.begin + 4 * at.slice < at.end) {
#pragma unroll
      for (int c = 0; c < 32; ++c) {
        atomicAdd(&high[c * 8 + at.in_group],
                  sums.high[c] - RowTraits<type>::kOffset * sums.high_all);
        atomicAdd(&low[c * 8 + at.in_group], sums.low[c] - RowTraits<type>::kOffset * sums.low_all);
      }
    }
  }
  __syncthreads();
  const int column = blockIdx.x * 256 + threadIdx.x;
  if (column >= p.weights.cols) return;
  const int from = threadIdx.x % 32 * 8 + threadIdx.x / 32;
  const std::ptrdiff_t to = (StartOf(at.token, gridDim.y) + at.run) * p.weights.cols + column;
  p.high[to] = high[from];
  p.low[to] = low[from];
}

// Sums of minimums, in the order of the rows: all threads load, eight add, each for a block of 32
// columns.
template <DType type>
__device__ void SumMinimums(const DeviceSumRowsParams& p, const Place& at) {
  __shared__ float h[kSlices], minimums[kSlices][8];
  float sum = 0;
  for (int first = at.begin; first < at.end; first += kSlices) {
    const int k = min(first + at.slice, at.end - 1), id = p.neurons.ids[k];
    const int slot = p.weights.slots != nullptr ? p.weights.slots[id] : id;
    const std::uint8_t* row = p.weights.data + slot * SizesOf<type>::RowBytes(p.weights.cols);
    if (at.in_group == 0) h[at.slice] = p.h[StartOf(at.token, p.h_stride) + id];
    minimums[at.slice][at.in_group] = at.there ? ScalesOf<type>(p, at, row).y : 0;
    __syncthreads();
    for (int i = 0; at.slice == 0 && i < min(kSlices, at.end - first); ++i)
      sum = fmaf(h[i], minimums[i][at.in_group], sum);
    __syncthreads();
  }
  if (at.there && at.slice == 0) p.minimums[at.numbers] = sum;
}

template <DType type>
__global__ void __launch_bounds__(kThreads, 4) MaxOfRows(DeviceSumRowsParams p) {
  LargestOf<type>(p, PlaceOf(p));
}

template <DType type>
__global__ void __launch_bounds__(kThreads, 2) SumOfRows(DeviceSumRowsParams p) {
  const Place at = PlaceOf(p);
  SumRun<type>(p, at, at.there ? LimitOf(p.limits, at.numbers) : 0);
  if constexpr (RowTraits<type>::kHasMin) SumMinimums<type>(p, at);
}

// All steps in one launch. With a single partition the limits are the maxima of the run's own rows,
// which each thread block finds itself. The thread block that finishes last for a range of columns
// adds up the sums of all runs.
template <DType type>
__global__ void __launch_bounds__(kThreads, 2) DownRows(DeviceDownRowsParams p) {
  const Place at = PlaceOf(p.sum);
  SumRun<type>(p.sum, at, LargestOf<type>(p.sum, at));
  if constexpr (RowTraits<type>::kHasMin) SumMinimums<type>(p.sum, at);
  if (!IsLastOf(gridDim.y, p.tickets + at.token * gridDim.x + blockIdx.x)) return;
  const int column = blockIdx.x * 256 + threadIdx.x;
  if (column < p.finish.cols) FinishColumn<false>(p.finish, at.token, column);
}

dim3 GridOf(const DeviceSumRowsParams& p) {
  return dim3((p.weights.cols + 255) / 256, NumSumRuns(p.weights.neurons), p.tokens);
}

}  // namespace

DeviceError MaxRows(const DeviceSumRowsParams& p, Stream stream) {
  return ForSummableType(p.weights.type, [&](auto constant) {
    return Launch(MaxOfRows<decltype(constant)::value>, GridOf(p), dim3(kThreads), 0, stream, p);
  });
}

DeviceError SumQuantizedRows(const DeviceSumRowsParams& p, Stream stream) {
  return ForSummableType(p.weights.type, [&](auto constant) {
    return Launch(SumOfRows<decltype(constant)::value>, GridOf(p), dim3(kThreads), 0, stream, p);
  });
}

DeviceError DownQuantizedRows(const DeviceDownRowsParams& p, Stream stream) {
  return ForSummableType(p.sum.weights.type, [&](auto constant) {
    return Launch(DownRows<decltype(constant)::value>, GridOf(p.sum), dim3(kThreads), 0, stream, p);
  });
}

}  // namespace thermocline::kernels::THERMOCLINE_CUDA
