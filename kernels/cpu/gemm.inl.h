// gemm.h on sixteen lanes: one lane is one row of a panel.
//
// A block of 32 columns of Q4_0 takes 4 loads, 8 mask-and-shift, 8 dot products and 4 further
// instructions for 512 weights. Several tokens share the decoded weights (gemm_slab.inl.h); each
// token's sums run in the same order whatever the tile, so prefill and decode give the same bits.
// Bytes moved per token and matrix: the weights once per pass of tokens.
//
// Measured on one Zen 4 core, AVX-512, before groups and slabs, weights in the second-level cache,
// one token: Q8_0 100 GB/s, Q4_1 70, Q4_0 66, Q5_1 55, Q4_K and Q6_K 53, Q5_K 45; the same core
// reads 28 from memory. With 64 tokens Q4_0 makes 181 G multiply-adds a second, of 237 that the dot
// product alone could. Attempts, with weights in memory and one token:
//   software prefetch on Zen 4, which reads 28 GB/s a core: 1% to 45% slower, 512 B to 8 KiB ahead
//   the same on Zen 5, two cores that read 67 GB/s, tokens/s of a 1.5 GB shape, AVX2 and AVX-512:
//     bytes ahead        none     0 (own lines)     1 Ki      2 Ki      4 Ki      8 Ki     16 Ki
//     Q4_0              37 43         40 45        41 46     44 49     47 50     52 51     50 48
//     Q4_K_M            21 27         33 40        35 40     38 43     41 46     48 45     46 42
//   so the loader measures both (load/prefetch_tuner.h)
//   scales apart from the quads (all vectors on cache lines, two streams)     18% to 40% slower
//   two blocks' scales together (vectors on cache lines, one stream)          no difference
//   long rows cut into ranges of columns for prompts (ChunkColumns)           no loss; for caches
//                                                                             smaller than 1 MiB
//   each thread its own run of neighbouring panels (base/worker_pool.h)       10% to 40% faster
#include "kernels/cpu/unroll.h"
#include "kernels/cpu/vector128.h"
#include "kernels/gemm.h"
#include "kernels/layout/panel_view.h"

namespace thermocline::kernels {
namespace {

// Sixteen values as they lie in memory, to floats.
// kNibbles: eight bytes, whose low nibbles are the first eight values; value = nibble - 8.
enum class Column { kF32, kF16, kBF16, kI8, kNibbles };
// Returns the kind of a float type's columns.
constexpr Column ColumnOf(DType type) {
  return type == DType::kF32 ? Column::kF32 : type == DType::kF16 ? Column::kF16 : Column::kBF16;
}

template <Column kind>
inline F32x16 LoadColumn(const std::uint8_t* columns, int col) {
  const std::ptrdiff_t at = col;
  if constexpr (kind == Column::kF32) return LoadF32(columns + at * 64);
  if constexpr (kind == Column::kF16) return LoadF16(columns + at * 32);
  if constexpr (kind == Column::kBF16) return LoadBF16(columns + at * 32);
  if constexpr (kind == Column::kI8) return ToF32(LoadI8(columns + at * 16));
  if constexpr (kind == Column::kNibbles)
    return ToF32(SubI(LoadNibbles(columns + at * 8), Set1I(8)));
}

constexpr int ColumnBytes(Column kind) {
  return kind == Column::kF32 ? 64 : kind == Column::kI8 ? 16 : kind == Column::kNibbles ? 8 : 32;
}

// Prefetches the bytes as far behind `ahead` as column c is behind the first column, a line at a
// time. Does nothing if `ahead` is null.
template <Column kind>
inline void PrefetchColumn(const std::uint8_t* ahead, int c) {
  constexpr int kBytes = ColumnBytes(kind);
  if (ahead != nullptr && c % (64 / kBytes) == 0) PrefetchNear(ahead + StartOf(c, kBytes));
}

// Sums of T tokens in four chains: chain i of token t is at i * T + t. All loops over them are
// unrolled by hand (unroll.h).
template <int T>
struct Chains {
  F32x16 of[4 * T];
};

// The four chains in registers, which hide the latency of the multiply-add.
template <int T, Column kind>
[[gnu::always_inline]] inline void MultiplyInterleaved(const std::uint8_t* columns, int cols,
                                                       const float* const (&x)[T],
                                                       const std::uint8_t* ahead,
                                                       Chains<T>& chains) {
  int c = 0;
  const auto add = [&]<int i>() __attribute__((always_inline)) {
    const F32x16 w = LoadColumn<kind>(columns, c + i);
    Unroll<0, T>([&]<int t>() __attribute__((always_inline)) {
      chains.of[i * T + t] = Fma(w, Set1(x[t][c + i]), chains.of[i * T + t]);
    });
  };
  for (; c + 4 <= cols; c += 4) {
    for (int i = 0; i < 4; ++i) PrefetchColumn<kind>(ahead, c + i);
    Unroll<0, 4>(add);
  }
  if (c < cols) add.template operator()<0>();
  if (c + 1 < cols) add.template operator()<1>();
  if (c + 2 < cols) add.template operator()<2>();
}

// Chains [i, i + kChains) over columns [begin, end).
template <int T, Column kind, int i, int kChains>
[[gnu::always_inline]] inline void MultiplyPass(const std::uint8_t* columns, int begin, int end,
                                                const float* const (&x)[T],
                                                const std::uint8_t* ahead, Chains<T>& chains) {
  F32x16 sum[kChains * T];
  Unroll<0, kChains * T>([&]<int k>()
                             __attribute__((always_inline)) { sum[k] = chains.of[i * T + k]; });
  const auto add = [&]<int j>(int c) __attribute__((always_inline)) {
    PrefetchColumn<kind>(ahead, c);
    const F32x16 w = LoadColumn<kind>(columns, c);
    Unroll<0, T>([&]<int t>() __attribute__((always_inline)) {
      sum[j * T + t] = Fma(w, Set1(x[t][c]), sum[j * T + t]);
    });
  };
  int c = begin + i;
  for (; c + kChains <= end; c += 4)
    Unroll<0, kChains>([&]<int j>()
                           __attribute__((always_inline)) { add.template operator()<j>(c + j); });
  if (c < end) add.template operator()<0>(c);
  Unroll<0, kChains * T>([&]<int k>()
                             __attribute__((always_inline)) { chains.of[i * T + k] = sum[k]; });
}

// Some chains at a time in registers: more tokens share a column's load and conversion. The chains
// take passes; 256 columns at a time, so that the passes find them in the cache.
template <int T, Column kind, int kChains>
inline void MultiplyByChains(const std::uint8_t* columns, int cols, const float* const (&x)[T],
                             const std::uint8_t* ahead, Chains<T>& chains) {
  constexpr int kColumns = 256;
  for (int first = 0; first < cols; first += kColumns) {
    const int end = first + kColumns < cols ? first + kColumns : cols;
    Unroll<0, 4 / kChains>([&]<int pass>() __attribute__((always_inline)) {
      MultiplyPass<T, kind, pass * kChains, kChains>(columns, first, end, x, ahead, chains);
    });
  }
}

// acc[t] = sum over columns of column c times x[t][c], in four chains a token. As many bytes from
// `ahead` on are prefetched meanwhile, unless it is null.
template <int T, Column kind>
void MultiplyColumns(const std::uint8_t* columns, int cols, const float* const (&x)[T],
                     const std::uint8_t* ahead, F32x16 (&acc)[T]) {
  Chains<T> chains;
  Unroll<0, 4 * T>([&]<int k>() __attribute__((always_inline)) { chains.of[k] = ZeroF(); });
  if constexpr (T <= kFloatTile) {
    MultiplyInterleaved<T, kind>(columns, cols, x, ahead, chains);
  } else {
    MultiplyByChains<T, kind, T <= kPairTile ? 2 : 1>(columns, cols, x, ahead, chains);
  }
  Unroll<0, T>([&]<int t>() __attribute__((always_inline)) {
    acc[t] = AddF(AddF(chains.of[t], chains.of[T + t]),
                  AddF(chains.of[2 * T + t], chains.of[3 * T + t]));
  });
}

// Calls body.operator()<T>(first) for tiles of T of `n` tokens, using as few tiles as possible.
template <typename Body>
inline void ForFloatTiles(int n, const Body& body) {
  int at = 0;
  const auto take = [&]<int T>() {
    body.template operator()<T>(at);
    at += T;
  };
  while (n - at >= kWideTile && n - at != 7 && n - at != 8) take.template operator()<kWideTile>();
  while (at < n) {
    const int left = n - at;
    if (left == 4 || left >= 7) {
      take.template operator()<4>();
    } else if (left >= 3) {
      take.template operator()<3>();
    } else if (left == 2) {
      take.template operator()<2>();
    } else {
      take.template operator()<1>();
    }
  }
}

// The scales and minimums of the eight sub-blocks of Q4_K and Q5_K.
inline void DecodeSixBitNumbers(const std::uint8_t* words, I32x16 (&numbers)[16]) {
  I32x16 word[3];
  for (int i = 0; i < 3; ++i) word[i] = LoadI32(words + kQuadBytes * i);
  for (int k = 0; k < 15; ++k) numbers[k] = AndI(ShiftRightI(word[k / 5], 6 * (k % 5)), 63);
  const I32x16 low = ShiftRightI(word[0], 30), middle = AndI(ShiftRightI(word[1], 28), 12),
               high = AndI(ShiftRightI(word[2], 26), 48);
  numbers[15] = AddI(low, AddI(middle, high));
}
inline void DecodeSixBitNumbers(const std::uint8_t* words, F32x16 (&numbers)[16]) {
  I32x16 integers[16];
  DecodeSixBitNumbers(words, integers);
  for (int k = 0; k < 16; ++k) numbers[k] = ToF32(integers[k]);
}
// The scales of the eight sub-blocks of IQ4_XS, from u16[16] and u32[16].
inline void DecodeIq4XsScales(const std::uint8_t* words, I32x16 (&numbers)[16]) {
  const I32x16 half = LoadU16(words), word = LoadI32(words + 32);
  for (int k = 0; k < 5; ++k) numbers[k] = AndI(ShiftRightI(word, 6 * k), 63);
  for (int k = 5; k < 7; ++k) numbers[k] = AndI(ShiftRightI(half, 6 * (k - 5)), 63);
  numbers[7] = AddI(ShiftRightI(word, 30), AndI(ShiftRightI(half, 10), 60));
  for (int k = 0; k < 8; ++k) numbers[k] = SubI(numbers[k], Set1I(32));
}

}  // namespace
}  // namespace thermocline::kernels

#include "kernels/cpu/gemm_slab.inl.h"

namespace thermocline::kernels {
namespace {

// Float weights: T tokens of one panel.
template <int T, Column kind>
void FloatTile(const GemmParams& p, int panel, int token) {
  const float* x[T];
  F32x16 acc[T];
  for (int t = 0; t < T; ++t) x[t] = p.activations.x + StartOf(token + t, p.activations.cols);
  const std::uint8_t* columns = p.weights.panel(panel);
  const bool asks = p.prefetch_bytes > 0 && token == 0;
  MultiplyColumns<T, kind>(columns, p.weights.cols, x, asks ? columns + p.prefetch_bytes : nullptr,
                           acc);
  const int rows = RowsOfPanel(p, panel);
  Unroll<0, T>([&]<int t>() __attribute__((always_inline)) {
    StorePartial(OutputAt(p, panel, token + t), rows, acc[t]);
  });
}

template <Column kind>
void GemmFloats(const GemmParams& p) {
  for (int panel = p.panel_begin; panel < p.panel_end; ++panel) {
    ForFloatTiles(p.tokens, [&]<int T>(int token) { FloatTile<T, kind>(p, panel, token); });
  }
}

void Gemm(const GemmParams& p) {
  ForDType(p.weights.type, [&](auto type) {
    if constexpr (Traits(type).quantized) {
      GemmQuantised<type>(p);
    } else {
      GemmFloats<ColumnOf(type)>(p);
    }
  });
}

}  // namespace
}  // namespace thermocline::kernels
