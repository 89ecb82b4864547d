// Products of the rows of a set of neurons: gemm_rows of device_sparse.h, for quantised types.
//
// A warp takes a tile of rows and a segment of columns: 32 lanes, 32 neighbouring blocks of 32
// columns. Each lane finds its blocks' exact integer dot products; they are left in shared memory
// as the pairs (a, b) of the chain acc = fma(a, b, acc) that gemm.h specifies, and then one lane
// for each (row, token) runs its chain in column order. Rows of a tile are loaded four at a time,
// so that enough bytes are in flight; if there are too few rows for all warps, four parts of a row
// are.
#include <type_traits>

#include "kernels/cuda/row_block.h"
#include "kernels/cuda/rows_epilogue.h"
#include "kernels/cuda/type_choice.h"

namespace thermocline::kernels::THERMOCLINE_CUDA {
namespace {

constexpr int kWarps = kListThreads / 32;  // of a block
constexpr int kUnitsMax = 8;               // rows times parts of 1024 columns in a segment
constexpr int kTogether = 4;               // units loaded at once
constexpr int kResultsMax = 16;            // units times tokens

// Shared memory of a warp.
template <DType type>
struct Warp {
  using Row = RowTraits<type>;
  static constexpr bool kBlocks256 = Row::kIsK || Row::kIsQ6;
  // Pairs of a chain for each 32 blocks, and all of them; one more each, for the banks.
  static constexpr int kPairs = (Row::kHasMin ? 2 : 1) * (kBlocks256 ? 4 : 32);
  float2 chain[kResultsMax * (kPairs + 1)];
  // Types with blocks of 256: the sub-blocks' dot products and minimums.
  float2 parts[kBlocks256 ? kResultsMax * 33 : 1];
  const std::uint8_t* rows[kUnitsMax];
};

// The partition of a call, the same for all warps.
struct Cut {
  int rows;    // rows in a tile
  int pieces;  // pieces of 32 blocks in a segment
  int count;   // rows in all
};

__device__ Cut CutFor(const DeviceGemmRowsParams& p) {
  Cut cut{1, 1, CountOf(p.neurons, p.weights.neurons)};
  const int warps = gridDim.x * kWarps;
  int units = kUnitsMax;
  while (units * p.tokens > kResultsMax) units /= 2;
  while (2 * cut.rows <= units && cut.rows * warps < cut.count) cut.rows *= 2;
  cut.pieces = units / cut.rows;
  return cut;
}

// The exact dot product of a row's block with one token's, as a pair of the chain.
template <DType type>
__device__ void Multiply(const RowBlock<type>& w, const std::uint32_t levels[8],
                         const Activations& x, std::ptrdiff_t block, Warp<type>& shared, int result,
                         int lane) {
  using Row = RowTraits<type>;
  const auto* q = reinterpret_cast<const int4*>(x.q + block * 32);
  const int4 left = __ldg(q), right = __ldg(q + 1);
  int first = Dot4(levels[0], left.x, 0);
  first = Dot4(levels[1], left.y, first);
  first = Dot4(levels[2], left.z, first);
  first = Dot4(levels[3], left.w, first);
  int second = Dot4(levels[4], right.x, 0);
  second = Dot4(levels[5], right.y, second);
  second = Dot4(levels[6], right.z, second);
  second = Dot4(levels[7], right.w, second);
  if constexpr (Row::kIsQ6) {
    const int half = x.half_sum[block], rest = x.sum[block] - half;
    const int dot =
        (first - Row::kOffset * half) * w.scale + (second - Row::kOffset * rest) * w.second;
    shared.parts[result * 33 + lane] = make_float2(static_cast<float>(dot), 0);
  } else if constexpr (Row::kIsK) {
    shared.parts[result * 33 + lane] =
        make_float2(static_cast<float>((first + second) * w.scale), static_cast<float>(w.second));
  } else {
    int dot = first + second;
    if constexpr (Row::kOffset != 0) dot -= Row::kOffset * x.sum[block];
    float2* chain =
        shared.chain + result * (Warp<type>::kPairs + 1) + lane * (Row::kHasMin ? 2 : 1);
    chain[0] = make_float2(w.d * x.scale[block], static_cast<float>(dot));
    if constexpr (Row::kHasMin) chain[1] = make_float2(w.m, x.scaled_sum[block]);
  }
}

// Blocks of 256: chains of their 8 sub-blocks, as pairs of the chain over blocks. `units` of them
// for `tokens` are in `parts`; unit u is piece `piece + u / rows` of row u % rows.
template <DType type>
__device__ void SumSubBlocks(const DeviceGemmRowsParams& p, const Cut& cut, int piece, int units,
                             Warp<type>& shared, int lane) {
  using Row = RowTraits<type>;
  const Activations& x = p.activations;
  const int blocks = x.cols / 32;
  for (int item = lane; item < units * p.tokens * 4; item += 32) {
    const int result = item / 4, unit = result / p.tokens, token = result % p.tokens;
    const int block = (piece + unit / cut.rows) * 32 + item % 4 * 8;  // the first of eight
    if (block >= blocks) continue;
    const float2* parts = shared.parts + result * 33 + item % 4 * 8;
    const std::ptrdiff_t at = StartOf(token, blocks) + block;
    float scaled = 0, mins = 0;
    for (int sub = 0; sub < 8; ++sub) {
      scaled = fmaf(parts[sub].x, x.scale[at + sub], scaled);
      if (Row::kIsK) mins = fmaf(parts[sub].y, x.scaled_sum[at + sub], mins);
    }
    const std::uint8_t* head =
        shared.rows[unit % cut.rows] + block / 8 * SizesOf<type>::kBlockBytes;
    float2* chain =
        shared.chain + result * (Warp<type>::kPairs + 1) + item % 4 * (Row::kHasMin ? 2 : 1);
    chain[0] = make_float2(LoadHalf(head + (Row::kIsQ6 ? 208 : 0)), scaled);
    if constexpr (Row::kIsK) chain[1] = make_float2(-LoadHalf(head + 2), mins);
  }
}

// The exact part of a segment: `units` pieces of rows from `piece` on.
template <DType type>
__device__ void MultiplySegment(const DeviceGemmRowsParams& p, const Cut& cut, int piece, int units,
                                Warp<type>& shared, int lane) {
  const int blocks = p.weights.cols / 32;
  const bool aligned = p.weights.cols % 256 == 0;
  for (int first = 0; first < units; first += kTogether) {
    RowBlock<type> w[kTogether];
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      const int unit = first + i, block = (piece + unit / cut.rows) * 32 + lane;
      if (unit < units && block < blocks)
        LoadRowBlock<type>(shared.rows[unit % cut.rows], block, blocks, aligned, w[i]);
    }
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      const int unit = first + i, block = (piece + unit / cut.rows) * 32 + lane;
      if (unit >= units || block >= blocks) continue;
      std::uint32_t levels[8];
      Levels<type>(w[i].words, levels);
      for (int t = 0; t < p.tokens; ++t)
        Multiply<type>(w[i], levels, p.activations, StartOf(t, blocks) + block, shared,
                       unit * p.tokens + t, lane);
    }
  }
  __syncwarp();
  if constexpr (Warp<type>::kBlocks256) {
    SumSubBlocks<type>(p, cut, piece, units, shared, lane);
    __syncwarp();
  }
}

// A tile of `matrix`: neuron `id` of lane k < cut.rows is row k. Products are in lanes
// row * tokens + token.
template <DType type>
__device__ float MultiplyTile(const DeviceGemmRowsParams& p, const DeviceRows& matrix,
                              const Cut& cut, int id, Warp<type>& shared, int lane) {
  using Row = RowTraits<type>;
  if (lane < cut.rows) {
    const int slot = matrix.slots != nullptr ? matrix.slots[id] : id;
    shared.rows[lane] = matrix.data + slot * SizesOf<type>::RowBytes(matrix.cols);
  }
  __syncwarp();
  const int blocks = p.weights.cols / 32, pieces = (blocks + 31) / 32;
  float acc = 0;
  for (int piece = 0; piece < pieces; piece += cut.pieces) {
    const int here = pieces - piece < cut.pieces ? pieces - piece : cut.pieces;
    MultiplySegment<type>(p, cut, piece, here * cut.rows, shared, lane);
    if (lane < cut.rows * p.tokens) {
      for (int i = 0; i < here; ++i) {
        const int left = blocks - (piece + i) * 32, whole = left < 32 ? left : 32;
        const int pairs = (Row::kHasMin ? 2 : 1) * (Warp<type>::kBlocks256 ? whole / 8 : whole);
        const float2* chain =
            shared.chain + (i * cut.rows * p.tokens + lane) * (Warp<type>::kPairs + 1);
        for (int k = 0; k < pairs; ++k) acc = fmaf(chain[k].x, chain[k].y, acc);
      }
    }
    __syncwarp();
  }
  return acc;
}

// Up's rows of a tile's neurons that live.
template <DType type>
__device__ void MultiplyUp(const DeviceGemmRowsParams& p, const Cut& cut, const Tile& tile,
                           unsigned lives, float gate, Warp<type>& shared, int lane) {
  const unsigned rows = LivingRows(p, tile, lives);
  const int count = __popc(rows);
  if (count == 0) return;
  Cut up = cut;
  while (up.rows >= 2 * count) up.rows /= 2, up.pieces *= 2;
  const int last = count - 1, k = lane < last ? lane : last;
  const int id = p.neurons.ids[tile.first + PlaceOfBit(rows, k)];
  const float product = MultiplyTile<type>(p, p.up, up, id, shared, lane);
  CombineLiving(p, tile, lives, rows, gate, product, lane);
}

template <DType type, bool gated>
__global__ void __launch_bounds__(kListThreads, 4) GemmRows(DeviceGemmRowsParams p) {
  __shared__ Warp<type> shared[kWarps];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const Cut cut = CutFor(p);
  const int warps = gridDim.x * kWarps;
  for (int at = blockIdx.x * kWarps + warp; at * cut.rows < cut.count; at += warps) {
    const Tile tile = {at * cut.rows, cut.rows, cut.count};
    const int k = tile.first + lane, last = cut.count - 1;
    const int id = p.neurons.ids[k < last ? k : last];
    float product = MultiplyTile<type>(p, p.weights, cut, id, shared[warp], lane);
    const unsigned lives = StoreProducts(p, tile, product, lane);
    if constexpr (gated) MultiplyUp<type>(p, cut, tile, lives, product, shared[warp], lane);
    __syncwarp();
  }
  EndRows(p);
}

}  // namespace

template <DType type>
DeviceError LaunchRows(const DeviceGemmRowsParams& p, Stream stream) {
  const auto kernel =
      p.epilogue == RowsEpilogue::kGated ? GemmRows<type, true> : GemmRows<type, false>;
  return Launch(kernel, dim3(RowsGrid(p.weights.neurons, kWarps)), dim3(kListThreads), 0, stream,
                p);
}

DeviceError GemmQuantizedRows(const DeviceGemmRowsParams& p, Stream stream) {
  return ForQuantizedType(p.weights.type, [&](auto constant) {
    return LaunchRows<decltype(constant)::value>(p, stream);
  });
}

}  // namespace thermocline::kernels::THERMOCLINE_CUDA
