// gemm.h for float weights: sums in a fixed order of their own, within 1e-5 of sum |w x|.
//
// A block owns one panel. A thread loads 16 bytes (8 or 4 rows of one column), and every 128th or
// 64th column is its own: so each output is the sum of as many chains in column order, added over
// lanes by halving distances and then over warps in order, whatever the number of tokens.
#include <type_traits>

#include "kernels/cuda/gemm_kernels.h"

namespace thermocline::kernels::THERMOCLINE_CUDA {
namespace {

constexpr int kThreads = 256;

// Rows in 16 bytes, and the bytes as floats.
template <DType kType>
struct Column {
  static constexpr int kRows = 16 / SizesOf<kType>::kBlockBytes;

  __device__ static __forceinline__ float Bits(unsigned bits) {
    return kType == DType::kF16 ? FromHalfBits(bits) : __uint_as_float(bits << 16);
  }
  __device__ static __forceinline__ void Decode(const uint4& bytes, float (&w)[kRows]) {
    const unsigned words[4] = {bytes.x, bytes.y, bytes.z, bytes.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if constexpr (kType == DType::kF32) {
        w[i] = __uint_as_float(words[i]);
      } else {
        w[2 * i] = Bits(words[i] & 0xFFFFU);
        w[2 * i + 1] = Bits(words[i] >> 16);
      }
    }
  }
};

template <DType kType, int kTokens>
__global__ void __launch_bounds__(kThreads) FloatTokens(GemmArgs args) {
  constexpr int kRows = Column<kType>::kRows, kParts = kPanelRows / kRows;
  __shared__ float sums[kThreads / 32][kTokens][kPanelRows];
  const int thread = threadIdx.x, lane = thread % 32;
  const int first = blockIdx.y * kTokens, cols = args.x.cols;
  const int tokens = min(kTokens, args.x.tokens - first);
  const float* x = args.floats + StartOf(first, cols);
  const auto* panel = reinterpret_cast<const uint4*>(args.weights + blockIdx.x * args.panel_bytes);
  float acc[kTokens][kRows] = {};
#pragma unroll 4
  for (int column = thread / kParts; column < cols; column += kThreads / kParts) {
    float w[kRows];
    Column<kType>::Decode(__ldg(panel + column * kParts + thread % kParts), w);
#pragma unroll
    for (int t = 0; t < kTokens; ++t) {
      const float value = t < tokens ? __ldg(x + t * cols + column) : 0.0F;
#pragma unroll
      for (int r = 0; r < kRows; ++r) acc[t][r] = __fmaf_rn(w[r], value, acc[t][r]);
    }
  }
#pragma unroll
  for (int t = 0; t < kTokens; ++t) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      float sum = acc[t][r];
      for (int bits = 16; bits >= kParts; bits /= 2) sum += __shfl_xor_sync(~0U, sum, bits);
      if (lane < kParts) sums[thread / 32][t][lane * kRows + r] = sum;
    }
  }
  __syncthreads();
  if (thread >= tokens * kPanelRows) return;
  float sum = 0;
  for (int warp = 0; warp < kThreads / 32; ++warp)
    sum += sums[warp][thread / kPanelRows][thread % kPanelRows];
  args.out.Store(first + thread / kPanelRows, blockIdx.x * kPanelRows + thread % kPanelRows, sum);
}

template <DType kType>
DeviceError Run(const GemmArgs& args, Stream stream) {
  const int panels = NumPanels(args.out.rows);
  if (args.x.tokens == 1) return Launch(FloatTokens<kType, 1>, panels, kThreads, 0, stream, args);
  const int tiles = (args.x.tokens + kTokenTile - 1) / kTokenTile;
  return Launch(FloatTokens<kType, kTokenTile>, dim3(panels, tiles), kThreads, 0, stream, args);
}

}  // namespace

DeviceError GemmFloat(DType type, const GemmArgs& args, Stream stream) {
  if (type == DType::kF32) return Run<DType::kF32>(args, stream);
  if (type == DType::kF16) return Run<DType::kF16>(args, stream);
  return Run<DType::kBF16>(args, stream);
}

}  // namespace thermocline::kernels::THERMOCLINE_CUDA
