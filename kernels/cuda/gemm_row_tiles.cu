// gemm_rows of device_sparse.h for prompts: the rows of a set of neurons on the tensor cores.
//
// A block takes 32 listed rows and 16 tokens. It walks along the columns, 256 at a time: the bytes
// of the rows and the tokens are copied to shared memory two steps ahead, and each warp multiplies
// 16 rows by 8 tokens, as gemm_many.cu does with a panel. The products go through shared memory to
// the epilogues of rows_epilogue.h. Of up's rows (kGated) only those that are live for a token are
// copied.
//
// Bytes moved: the listed rows once for 16 tokens. Bytes in flight: 9 KiB of Q4_0's rows, 17 KiB of
// Q8_0's for each block. Instructions of a warp for 16 rows, 8 tokens and 32 columns: 46 of Q4_0,
// most of them the chain's; gemm_rows.cu takes about 150 for the same.
#include "kernels/cuda/gemm_kernels.h"
#include "kernels/cuda/row_tile.h"
#include "kernels/cuda/rows_epilogue.h"
#include "kernels/cuda/type_choice.h"

namespace thermocline::kernels::THERMOCLINE_CUDA {
namespace {

constexpr int kRows = 32, kTokens = kSparseTokensMax, kStages = 3;
constexpr int kWarps = kListThreads / 32, kWarpRows = kRows / kWarps;
static_assert(kRows / 16 * (kTokens / kTokenTile) == kWarps);

// 256 columns. Padding puts the words that a warp reads at once into different banks.
template <DType type>
struct alignas(16) Stage {
  static constexpr int kStride = (RowStretch<type>::kPieces | 1) * 16;
  static constexpr bool kHasMin = RowTraits<type>::kHasMin;
  std::uint8_t rows[kRows][kStride];
  std::int8_t q[kTokens][kTileColumns + 16];
  float scale[kTokens][kTileBlocks + 4];
  float scaled_sum[kHasMin ? kTokens : 1][kTileBlocks + 4];
};

template <DType type>
struct Shared {
  Stage<type> stages[kStages];
  const std::uint8_t* rows[kRows];  // null: not there
  float gate[kRows][kTokens + 1], product[kRows][kTokens + 1];
  unsigned lives[kRows];  // tokens
};

__device__ __forceinline__ int Thread() { return threadIdx.x; }

// Starts copying 256 columns from 256 * step on.
template <DType type>
__device__ __forceinline__ void Start(const DeviceGemmRowsParams& p, int step,
                                      Shared<type>& shared) {
  using Stretch = RowStretch<type>;
  Stage<type>& stage = shared.stages[step % kStages];
  const std::size_t row_bytes = SizesOf<type>::RowBytes(p.weights.cols);
#pragma unroll
  for (int u = 0; u < (kRows * Stretch::kPieces + kListThreads - 1) / kListThreads; ++u) {
    const int i = u * kListThreads + Thread();
    if (i >= kRows * Stretch::kPieces) break;
    const int row = i / Stretch::kPieces, piece = i % Stretch::kPieces;
    const std::uint8_t* from = shared.rows[row];
    const bool there = from != nullptr;
    if (!there) from = p.weights.data;
    Stretch::Copy(stage.rows[row], from + StartOf(step, Stretch::kBytes), from + row_bytes, piece,
                  there);
  }
  const Activations& x = p.activations;
#pragma unroll
  for (int u = 0; u < kTokens * kTileColumns / 16 / kListThreads; ++u) {
    const int i = u * kListThreads + Thread(), token = i / 16, piece = i % 16;
    const int there = token < p.tokens ? 1 : 0;
    ptx::CopyAsync<16>(&stage.q[token][16 * piece],
                       x.q + StartOf(there * token, x.cols) + step * kTileColumns + 16 * piece,
                       16 * there);
  }
  const int token = Thread() / 2 % kTokens, four = Thread() % 2 * 4;
  const int there = token < p.tokens ? 1 : 0;
  const std::ptrdiff_t at = StartOf(there * token, x.cols / 32) + step * kTileBlocks + four;
  if (Thread() < 2 * kTokens)
    ptx::CopyAsync<16>(&stage.scale[token][four], x.scale + at, 16 * there);
  else if (Stage<type>::kHasMin && Thread() < 4 * kTokens)
    ptx::CopyAsync<16>(&stage.scaled_sum[token][four], x.scaled_sum + at, 16 * there);
}

// Adds a step's 256 columns to the chains of rows `row` + g, `row` + g + 8 and tokens `token` + 2t,
// `token` + 2t + 1. `upper`, `lower`: where those rows begin in the stage.
template <DType type>
__device__ __forceinline__ void MultiplyStep(const Stage<type>& stage, int row, int token,
                                             int upper, int lower, Chain<type> (&chains)[4]) {
  using P = PanelTraits<type>;
  const int lane = Thread() % 32, g = lane / 4, t = lane % 4;
  const RowStretch<type> rows[2] = {RowStretch<type>(stage.rows[row + g] + upper),
                                    RowStretch<type>(stage.rows[row + g + 8] + lower)};
  const auto* q = reinterpret_cast<const unsigned*>(stage.q[token + g]) + t;
#pragma unroll
  for (int block = 0; block < kTileBlocks; ++block) {
    GroupLevels<type> levels;
    levels.LoadFrom([&](int r, int j) { return rows[r].LevelWord(block, j); }, t);
    const Pair numbers[2] = {rows[0].Numbers(block), rows[1].Numbers(block)};
    Dots<type> dots;
    dots.Multiply(levels, t, {q[block * 8], q[block * 8 + 4]});
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int of = token + 2 * t + i % 2;
      float parts[Dots<type>::kParts];
      for (int part = 0; part < Dots<type>::kParts; ++part) parts[part] = dots.Get(part, i);
      chains[i].Add(TermOf<type>(parts, numbers[i / 2], stage.scale[of][block],
                                 P::kHasMin ? stage.scaled_sum[of][block] : 0));
    }
  }
  if constexpr (P::kK) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const Pair block = rows[i / 2].Block();
      chains[i].EndBlock(block.first, block.second);
    }
  }
}

// Products of shared.rows with all tokens, in `out` after the block's next barrier.
template <DType type>
__device__ __forceinline__ void MultiplyRows(const DeviceGemmRowsParams& p, Shared<type>& shared,
                                             float (&out)[kRows][kTokens + 1]) {
  const int lane = Thread() % 32, warp = Thread() / 32, steps = p.weights.cols / kTileColumns;
  const int row = warp / 2 * 16, token = warp % 2 * kTokenTile;
  const std::uint8_t *upper = shared.rows[row + lane / 4], *lower = shared.rows[row + lane / 4 + 8];
  for (int step = 0; step < kStages - 1; ++step) {
    if (step < steps) Start(p, step, shared);
    ptx::CommitCopies();
  }
  Chain<type> chains[4];
  for (int step = 0; step < steps; ++step) {
    ptx::WaitForCopies<kStages - 2>();
    __syncthreads();  // all copies have arrived, and no thread still reads the previous stage
    if (step + kStages - 1 < steps) Start(p, step + kStages - 1, shared);
    ptx::CommitCopies();
    const std::size_t at = StartOf(step, RowStretch<type>::kBytes);
    MultiplyStep<type>(shared.stages[step % kStages], row, token,
                       RowStretch<type>::Shift(upper + at), RowStretch<type>::Shift(lower + at),
                       chains);
  }
#pragma unroll
  for (int i = 0; i < 4; ++i)
    out[row + lane / 4 + i / 2 * 8][token + lane % 4 * 2 + i % 2] = chains[i].acc;
}

// Finds the row of neuron `id`, or none, for thread `row` < kRows.
template <DType type>
__device__ __forceinline__ void FindRow(const std::uint8_t* data, const std::int32_t* slots, int id,
                                        bool there, int cols, Shared<type>& shared) {
  if (Thread() >= kRows) return;
  const int slot = !there ? 0 : slots != nullptr ? slots[id] : id;
  shared.rows[Thread()] = there ? data + slot * SizesOf<type>::RowBytes(cols) : nullptr;
}

// Calls body(lane's row of the block, token, tile) for the warp's rows, as many at once as fit the
// lanes; lanes without a row get row -1.
template <typename Body>
__device__ __forceinline__ void ForWarpRows(int tokens, int first, int count, const Body& body) {
  const int lane = Thread() % 32, warp = Thread() / 32, at_once = 32 / tokens;
  for (int begin = 0; begin < kWarpRows; begin += at_once) {
    const int row = warp * kWarpRows + begin, rows = min(at_once, kWarpRows - begin);
    body(lane / tokens < rows ? row + lane / tokens : -1, lane % tokens,
         Tile{first + row, rows, count});
  }
}

// Stores the products in shared.gate; with its bias if up's are to come.
template <DType type>
__device__ __forceinline__ void StoreRows(const DeviceGemmRowsParams& p, int first, int count,
                                          Shared<type>& shared) {
  const int lane = Thread() % 32;
  ForWarpRows(p.tokens, first, count, [&](int row, int token, const Tile& tile) {
    float v = row >= 0 ? shared.gate[row][token] : 0;
    const unsigned lives = StoreProducts(p, tile, v, lane);
    if (p.epilogue != RowsEpilogue::kGated || row < 0) return;
    shared.gate[row][token] = v;
    if (token == 0)
      shared.lives[row] = (lives >> (lane / p.tokens * p.tokens)) & ((1U << p.tokens) - 1);
  });
}

// h of the tile's neurons that are live for a token, from both products.
template <DType type>
__device__ __forceinline__ void StoreUp(const DeviceGemmRowsParams& p, int first, int count,
                                        const Shared<type>& shared) {
  ForWarpRows(p.tokens, first, count, [&](int row, int token, const Tile&) {
    if (row < 0 || shared.lives[row] == 0) return;
    StoreGated(p, p.neurons.ids[first + row], token, (shared.lives[row] >> token & 1U) != 0,
               shared.gate[row][token], shared.product[row][token]);
  });
}

// One loop for the rows of `weights` and then, of the neurons that live, of `up`.
template <DType type>
__global__ void __launch_bounds__(kListThreads, 4) GemmRowTiles(DeviceGemmRowsParams p) {
  __shared__ Shared<type> shared;
  const int count = CountOf(p.neurons, p.weights.neurons);
  bool up = false;
  for (int first = blockIdx.x * kRows; first < count;) {
    const int k = first + Thread() % kRows, last = count - 1;
    const int id = p.neurons.ids[k < last ? k : last];
    const bool there = k < count && (!up || shared.lives[Thread() % kRows] != 0);
    bool ends = p.epilogue != RowsEpilogue::kGated || up;
    if (__ballot_sync(0xFFFFFFFFU, there ? 1 : 0) != 0) {
      FindRow<type>(up ? p.up.data : p.weights.data, up ? p.up.slots : p.weights.slots, id, there,
                    p.weights.cols, shared);
      __syncthreads();
      MultiplyRows<type>(p, shared, up ? shared.product : shared.gate);
      __syncthreads();
      if (up)
        StoreUp(p, first, count, shared);
      else
        StoreRows(p, first, count, shared);
    } else {
      ends = true;
    }
    __syncthreads();  // shared memory is used again
    up = !ends;
    if (ends) first += gridDim.x * kRows;
  }
  EndRows(p);
}

}  // namespace

DeviceError GemmQuantizedRowTiles(const DeviceGemmRowsParams& p, Stream stream) {
  return ForQuantizedType(p.weights.type, [&](auto constant) {
    constexpr DType kType = decltype(constant)::value;
    return Launch(GemmRowTiles<kType>, dim3(RowsGrid(p.weights.neurons, kRows)), dim3(kListThreads),
                  0, stream, p);
  });
}

}  // namespace thermocline::kernels::THERMOCLINE_CUDA
