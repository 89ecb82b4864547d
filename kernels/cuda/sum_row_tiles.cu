// The down projection's sum (sum_rows.cu) for the tokens of a prompt, on the tensor cores.
//
// A block has one run of 1,024 neurons, 256 columns and all tokens; each of its warps has 32 of the
// columns. It takes 32 listed rows a step: their bytes and their h are copied to shared memory some
// steps ahead. A matrix instruction adds 32 rows to 8 columns of 16 tokens: its left side are the
// coefficients' high or low bytes, by token and row, its right side levels, by row and column. Sums
// of integers need no order, so rows and columns lie in the operands as they are cheap to load:
// lane 4g + t takes rows t, t + 4, ..., and a word of each, four bytes of which become one word of
// a column; instruction i takes columns 4g + i. The maxima come before, from scales alone, by the
// same steps without levels.
//
// Bytes moved: the listed rows once, their first sectors twice. Instructions of a warp for 32 rows,
// 32 columns and 16 tokens: 260 of Q4_0 and 110 for the maxima; sum_rows.cu takes 1,600, and the
// maxima.
#include "kernels/cuda/finish_sum.h"
#include "kernels/cuda/run_steps.h"
#include "kernels/cuda/sparse_ops.h"
#include "kernels/cuda/type_choice.h"
#include "kernels/quantize.h"

namespace thermocline::kernels::THERMOCLINE_CUDA {
namespace {

// The largest |h a| of the warp's 32 columns and tokens g and g + 8.
template <DType type>
__device__ __forceinline__ void FindLargest(const DeviceSumRowsParams& p, int count,
                                            RunShared<type>& shared, const StepLane& of,
                                            float (&largest)[2]) {
  ForSteps(p, count, shared, shared.heads, [&](const typename RunShared<type>::Heads& stage) {
    const float factor = RowStretch<type>(stage.rows[of.lane]).Factor(of.warp);
    ForFours(stage, factor, of, [&](int, int r, const float(&factors)[4], const float(&h)[4]) {
#pragma unroll
      for (int j = 0; j < 4; ++j) largest[r] = fmaxf(largest[r], fabsf(h[j] * factors[j]));
    });
  });
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    for (int lanes = 1; lanes < 4; lanes *= 2)
      largest[r] = fmaxf(largest[r], __shfl_xor_sync(0xFFFFFFFFU, largest[r], lanes));
  }
}

// Byte `which` of four words.
template <int which>
__device__ __forceinline__ unsigned Bytes(const unsigned (&words)[4]) {
  constexpr unsigned kPick = which | (4 + which) << 4;
  return __byte_perm(__byte_perm(words[0], words[1], kPick), __byte_perm(words[2], words[3], kPick),
                     0x5410);
}

// The coefficients' bytes as left sides of matrix instructions. A float of 1.5 * 2^23 and a number
// below 2^22 holds that number, rounded to the nearest, ties to even, in its lowest bits.
template <typename StageOf>
__device__ __forceinline__ void Coefficients(const StageOf& stage, float factor, const StepLane& of,
                                             const float (&inverse)[2], unsigned (&high)[4],
                                             unsigned (&low)[4]) {
  ForFours(stage, factor, of, [&](int half, int r, const float(&factors)[4], const float(&h)[4]) {
    unsigned q[4], carried[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      q[j] = __float_as_uint(
          __fadd_rn(__fmul_rn(__fmul_rn(h[j], factors[j]), inverse[r]), 12582912.0F));
      carried[j] = q[j] + 128;
    }
    high[2 * half + r] = Bytes<1>(carried);
    low[2 * half + r] = Bytes<0>(q);
  });
}

// Levels of rows t, t + 4, ... of a half, less their offset and times 2^kShift: out[i] has those of
// the warp's column 4g + i.
template <DType type>
__device__ __forceinline__ void LevelsOf(const typename RunShared<type>::Whole& stage, int half,
                                         const StepLane& of, std::uint32_t (&out)[4]) {
  using P = PanelTraits<type>;
  std::uint32_t words[4];
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const RowStretch<type> row(stage.rows[16 * half + of.t + 4 * j]);
    if constexpr (P::kIsQ8) {
      words[j] = row.LevelWord(of.warp, of.g) ^ 0x80808080U;
    } else {
      const unsigned two = row.LevelWord(of.warp, of.g % 4), nibble = of.g / 4 * 4;
      words[j] = P::kShift != 0 ? ((two << (4 - nibble)) & 0xF0F0F0F0U) ^ 0x80808080U
                                : (two >> nibble) & 0x0F0F0F0FU;
    }
  }
  Transpose(words, out);
}

// Sums of the warp's columns: instruction i's.
struct Sums {
  int high[4][4] = {}, low[4][4] = {};
};

template <DType type>
__device__ __forceinline__ void AddStep(const typename RunShared<type>::Whole& stage,
                                        const StepLane& of, const float (&inverse)[2], Sums& sums) {
  unsigned high[4], low[4];
  const float factor = RowStretch<type>(stage.rows[of.lane]).Factor(of.warp);
  Coefficients(stage, factor, of, inverse, high, low);
  std::uint32_t columns[2][4];
  LevelsOf<type>(stage, 0, of, columns[0]);
  LevelsOf<type>(stage, 1, of, columns[1]);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    ptx::MmaK32(sums.high[i], high, {columns[0][i], columns[1][i]});
    ptx::MmaK32(sums.low[i], low, {columns[0][i], columns[1][i]});
  }
}

// The sum of minimums of token lane % 16, in the order of the rows.
template <DType type>
__device__ __forceinline__ float AddMinimums(const typename RunShared<type>::Whole& stage,
                                             const StepLane& of, float sum) {
  const float mine = RowStretch<type>(stage.rows[of.lane]).Minimum(of.warp);
  const float* h = stage.h[of.lane % kStepTokens];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float4 fours[4];
#pragma unroll
    for (int t = 0; t < 4; ++t)
      fours[t] = *reinterpret_cast<const float4*>(h + FourPlace(of.lane % kStepTokens, half, t));
#pragma unroll
    for (int row = 0; row < 16; ++row) {
      const float4& four = fours[row % 4];
      const float of_row = row < 4 ? four.x : row < 8 ? four.y : row < 12 ? four.z : four.w;
      sum = fmaf(of_row, __shfl_sync(0xFFFFFFFFU, mine, 16 * half + row), sum);
    }
  }
  return sum;
}

// Writes a token's sums of 4 columns, four times.
template <DType type>
__device__ __forceinline__ void Store(const DeviceSumRowsParams& p, const StepLane& of,
                                      const int (&sums)[4][4], std::int32_t* out) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int token = of.g + i / 2 * 8;
    if (token >= p.tokens) continue;
    const std::ptrdiff_t row = (StartOf(token, gridDim.y) + blockIdx.y) * p.weights.cols;
    const int column = (blockIdx.x * kTileBlocks + of.warp) * 32 + 8 * of.t + i % 2 * 4;
    constexpr int kShift = PanelTraits<type>::kShift;
    *reinterpret_cast<int4*>(out + row + column) = make_int4(
        sums[0][i] >> kShift, sums[1][i] >> kShift, sums[2][i] >> kShift, sums[3][i] >> kShift);
  }
}

// Returns the index of the warp's columns and a token, in [T, R, D / 32].
__device__ __forceinline__ std::ptrdiff_t NumberOf(const DeviceSumRowsParams& p, const StepLane& of,
                                                   int token) {
  return (StartOf(token, gridDim.y) + blockIdx.y) * (p.weights.cols / 32) +
         blockIdx.x * kTileBlocks + of.warp;
}

// Maxima, sums with given limits, or both: then the limits are the maxima.
template <DType type, bool maxima, bool sums>
__global__ void __launch_bounds__(kStepThreads, 2) RowTiles(DeviceSumRowsParams p) {
  __shared__ RunShared<type> shared;
  const StepLane of;
  const int count = FindRows(p, shared);
  float limits[2] = {};
  if constexpr (maxima) FindLargest(p, count, shared, of, limits);
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int token = of.g + 8 * r;
    if (token >= p.tokens) continue;
    if (!maxima) limits[r] = LimitOf(p.limits, NumberOf(p, of, token));
    if (maxima && of.t == 0) p.maxima[NumberOf(p, of, token)] = limits[r];
  }
  if constexpr (sums) {
    const float inverse[2] = {limits[0] > kActivationMin ? kCoefficientMax / limits[0] : 0,
                              limits[1] > kActivationMin ? kCoefficientMax / limits[1] : 0};
    Sums of_levels;
    float minimums = 0;
    ForSteps(p, count, shared, shared.whole, [&](const typename RunShared<type>::Whole& stage) {
      AddStep<type>(stage, of, inverse, of_levels);
      if constexpr (RowTraits<type>::kHasMin) minimums = AddMinimums<type>(stage, of, minimums);
    });
    Store<type>(p, of, of_levels.high, p.high);
    Store<type>(p, of, of_levels.low, p.low);
    if (RowTraits<type>::kHasMin && of.lane < p.tokens)
      p.minimums[NumberOf(p, of, of.lane)] = minimums;
  }
}

template <bool maxima, bool sums>
DeviceError LaunchTiles(const DeviceSumRowsParams& p, Stream stream) {
  return ForSummableType(p.weights.type, [&](auto constant) {
    const dim3 grid(p.weights.cols / kTileColumns, NumSumRuns(p.weights.neurons));
    return Launch(RowTiles<decltype(constant)::value, maxima, sums>, grid, dim3(kStepThreads), 0,
                  stream, p);
  });
}

}  // namespace

DeviceError MaxRowTiles(const DeviceSumRowsParams& p, Stream stream) {
  return LaunchTiles<true, false>(p, stream);
}

DeviceError SumRowTiles(const DeviceSumRowsParams& p, Stream stream) {
  return LaunchTiles<false, true>(p, stream);
}

DeviceError MaxAndSumRowTiles(const DeviceSumRowsParams& p, Stream stream) {
  return LaunchTiles<true, true>(p, stream);
}

}  // namespace thermocline::kernels::THERMOCLINE_CUDA
