// Products of the rows of a set of neurons, for float types: a warp for each row.
//
// A lane sums four neighbouring columns of every 128, in order; then the lanes' sums are added
// pairwise. The CPU's order (four chains over the columns, gemm.h) would keep 4 of the 32 lanes
// busy, so these sums may differ from the CPU's in their last bits.
#include "kernels/cuda/float_weights.h"
#include "kernels/cuda/rows_epilogue.h"

namespace thermocline::kernels::THERMOCLINE_CUDA {
namespace {

constexpr int kWarps = kListThreads / 32;

// Adds columns [c, c + 4), as far as the row has them, to `acc` of all tokens.
template <DType type>
__device__ void AddFour(const DeviceGemmRowsParams& p, const std::uint8_t* row, int c,
                        float acc[kSparseTokensMax]) {
  float w[4];
  LoadFloats<type>(row, c, p.weights.cols, w);
#pragma unroll
  for (int t = 0; t < kSparseTokensMax; ++t) {
    if (t >= p.tokens) break;
    const float* x = p.activations.x + StartOf(t, p.weights.cols) + c;
    for (int i = 0; i < 4; ++i) acc[t] = c + i < p.weights.cols ? fmaf(w[i], x[i], acc[t]) : acc[t];
  }
}

// Token t's product with a neuron's row in lane t.
template <DType type>
__device__ float MultiplyRow(const DeviceGemmRowsParams& p, const DeviceRows& matrix, int id,
                             int lane) {
  const int slot = matrix.slots != nullptr ? matrix.slots[id] : id;
  const std::uint8_t* row = matrix.data + slot * SizesOf<type>::RowBytes(matrix.cols);
  float acc[kSparseTokensMax] = {};
  for (int c = lane * 4; c < matrix.cols; c += 128) AddFour<type>(p, row, c, acc);
  float product = 0;
#pragma unroll
  for (int t = 0; t < kSparseTokensMax; ++t) {
    if (t >= p.tokens) break;
    float sum = acc[t];
    for (int bits = 16; bits > 0; bits /= 2) sum += __shfl_xor_sync(0xFFFFFFFFU, sum, bits);
    if (lane == t) product = sum;
  }
  return product;
}

template <DType type>
__global__ void __launch_bounds__(kListThreads) GemmFloats(DeviceGemmRowsParams p) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int count = CountOf(p.neurons, p.weights.neurons);
  for (int k = blockIdx.x * kWarps + warp; k < count; k += gridDim.x * kWarps) {
    const Tile tile = {k, 1, count};
    const int id = p.neurons.ids[k];
    float product = MultiplyRow<type>(p, p.weights, id, lane);
    const unsigned lives = StoreProducts(p, tile, product, lane);
    if (p.epilogue != RowsEpilogue::kGated || lives == 0) continue;
    const float up = MultiplyRow<type>(p, p.up, id, lane);
    CombineLiving(p, tile, lives, 1, product, up, lane);
  }
  EndRows(p);
}

}  // namespace

DeviceError GemmFloatRows(const DeviceGemmRowsParams& p, Stream stream) {
  const dim3 grid(RowsGrid(p.weights.neurons, kWarps)), block(kListThreads);
  switch (p.weights.type) {
    case DType::kF32:
      return Launch(GemmFloats<DType::kF32>, grid, block, 0, stream, p);
    case DType::kF16:
      return Launch(GemmFloats<DType::kF16>, grid, block, 0, stream, p);
    default:
      return Launch(GemmFloats<DType::kBF16>, grid, block, 0, stream, p);
  }
}

}  // namespace thermocline::kernels::THERMOCLINE_CUDA
