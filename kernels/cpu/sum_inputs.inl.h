// SumInputs of kernels/sum_inputs.h: sums over long rows, each read once from end to end.
//
// SumRows visits 64 bytes of many rows at a time, so that sums stay in registers. From memory that
// is a new page for every line. Here a few rows pass from end to end together while the next ones
// are prefetched, line after line, and the sums lie in the second-level cache. Two Zen 5 cores,
// AVX-512, 55% of rows of 22,016 and of 4,096 outputs, Q4_0, GB/s (52 from the cache):
//   SumRows, 512 outputs a call                                       32
//   16 rows together, coefficients as SumRows finds them              34
//   coefficients rounded at once, five lines asked for, four read     28 and 25
//   8 rows together                                                   27 and 29
//   lines asked for into the first-level cache                        31 and 30
//   as many as are read, evenly: four, and two while rounding (this)  35 and 31
// A core drops prefetches while its line buffers are full, so prefetches must be spread out: three
// of four bring half of that, eight 22. Plain loads, for which the processor asks by itself, give
// 42; a load instead of a prefetch waits for its line, 14. AVX2's sums of words want 16 rows
// together: 27 instead of 24. docs/benchmarks.md, "Inputs that count".
//
// Included after sum_rows.inl.h by one translation unit for each ISA.
#include "kernels/sum_inputs.h"

namespace thermocline::kernels {
namespace {

// The rows whose lines, with the next rows' lines, stay in the cache.
constexpr int kRowsTogether = kSumsInWords ? 16 : 8;
// Lines prefetched while four rows' blocks are processed, as many as those blocks have: beside 64
// bytes of their levels, and beside the scales of 16 blocks.
constexpr int kAskedAdding = 4, kAskedRounding = 2;

// Prefetches the range of rows one after the other: all of a row's lines before the next row's,
// because memory delivers neighbouring lines faster than lines of many rows.
struct RowsAhead {
  const std::uint8_t* const* rows;
  int count;                  // rows
  std::ptrdiff_t begin, end;  // bytes of a row
  int row = 0;
  std::ptrdiff_t at = 0;  // from begin

  template <DType type>
  static RowsAhead Of(const SumChunk& chunk, const SumRange& range) {
    constexpr std::ptrdiff_t kGroupBytes = RowBytes(type, 256);
    return {chunk.rows, chunk.count, range.first / 8 * kGroupBytes,
            (range.first + range.count + 7) / 8 * kGroupBytes};
  }
  // Prefetches the next `lines` lines, as far as there are any.
  template <int lines>
  void Ask() {
    for (int i = 0; i < lines && row < count; ++i) AskForOne();
  }
  void AskForOne() {
    PrefetchNear(rows[row] + begin + at);
    at += 64;
    if (begin + at < end) return;
    at = 0;
    ++row;
  }
};

// The buffers of a call: words of coefficients of the current rows, sums of all rows.
struct InputScratch {
  std::int32_t *high, *low;          // [kRowsTogether / 4, padded]
  float* inverse;                    // [padded] the factor of coefficients before rounding
  std::int32_t *high_sum, *low_sum;  // [padded] of the coefficients' bytes
  std::int32_t* sums;                // [tiles][high, low][sets][16]
};

inline InputScratch LayOutInputs(std::uint8_t* bytes, int padded) {
  auto* ints =
      reinterpret_cast<std::int32_t*>((reinterpret_cast<std::uintptr_t>(bytes) + 63) / 64 * 64);
  const std::ptrdiff_t area = StartOf(padded, kRowsTogether) / 4;
  auto* inverse = reinterpret_cast<float*>(ints + 2 * area);
  auto* sums = reinterpret_cast<std::int32_t*>(inverse + padded);
  return {ints, ints + area, inverse, sums, sums + padded, sums + 2 * padded};
}

inline void BeginInputs(const float* limits, const SumRange& range, const InputScratch& s) {
  for (int b = 0; b < range.padded; ++b) {
    const float limit = b < range.count ? limits[b] : 0;
    s.inverse[b] = limit > kActivationMin ? kCoefficientMax / limit : 0;
    s.high_sum[b] = s.low_sum[b] = 0;
  }
}

// Rounds the rows' coefficients; each byte of four rows goes into a word. `ahead` is prefetched
// meanwhile.
template <DType type>
void RoundInputs(const SumChunk& chunk, RowsAhead& ahead, const SumRange& range,
                 const InputScratch& s) {
  for (int b = 0; b < range.padded; b += 16) {
    const F32x16 inverse = LoadF32(s.inverse + b);
    I32x16 high_sum = LoadI32(s.high_sum + b), low_sum = LoadI32(s.low_sum + b);
    for (int k = 0; k < chunk.count; k += 4) {
      ahead.Ask<kAskedRounding>();
      I32x16 q[4], high, low;
      for (int r = 0; r < 4; ++r) {
        q[r] = ZeroI();
        if (k + r >= chunk.count) continue;
        F32x16 a, m;
        LoadScales<type>(chunk.rows[k + r], range, b, range.count - b, a, m);
        q[r] = RoundI(MulF(MulF(Set1(chunk.h[k + r]), a), inverse));
      }
      SplitBytes(q, high, low);
      high_sum = AddBytes(high_sum, high);
      low_sum = AddBytes(low_sum, low);
      StoreI32(s.high + StartOf(k / 4, range.padded) + b, high);
      StoreI32(s.low + StartOf(k / 4, range.padded) + b, low);
    }
    StoreI32(s.high_sum + b, high_sum);
    StoreI32(s.low_sum + b, low_sum);
  }
}

// Rows [first, first + kRowsTogether) of the listed ones; the last one again up to a multiple of 4.
inline SumChunk RowsFrom(const SumInputsParams& p, int first, const std::uint8_t** rows) {
  const int left = p.count - first, count = left < kRowsTogether ? left : kRowsTogether;
  for (int k = 0; k < count; ++k) rows[k] = p.weights.row(p.ids[first + k]);
  for (int k = count; count > 0 && k % 4 != 0; ++k) rows[k] = rows[count - 1];
  return {rows, p.x + first, count > 0 ? count : 0};
}

// A tile's sums so far.
template <DType type>
inline void LoadTile(const std::int32_t* sums, SumTile<type>& tile) {
  for (int i = 0; i < SumTile<type>::kSets; ++i) {
    tile.high[i] = LoadI32(sums + 16 * i);
    tile.low[i] = LoadI32(sums + 16 * (SumTile<type>::kSets + i));
  }
}
template <DType type>
inline void StoreTile(const SumTile<type>& tile, std::int32_t* sums) {
  for (int i = 0; i < SumTile<type>::kSets; ++i) {
    StoreI32(sums + 16 * i, tile.high[i]);
    StoreI32(sums + 16 * (SumTile<type>::kSets + i), tile.low[i]);
  }
}

// Adds one tile of the current rows.
template <DType type, bool kWhole>
inline void AddInputTile(const SumChunk& chunk, RowsAhead& ahead, const SumRange& range,
                         const InputScratch& s, int block, int blocks, std::int32_t* sums) {
  static_assert(kRowsTogether <= 4 * kRunsInWords);
  const std::ptrdiff_t offset = LevelsOffset<type>(range, block);
  const int bytes = blocks * SumTraits<type>::kBlockBytes;
  SumTile<type> tile;
  if constexpr (kInWords<type>)
    tile.Clear();
  else
    LoadTile<type>(sums, tile);
  for (int k = 0; k < chunk.count; k += 4) {
    U8x64 rows[4];
    for (int r = 0; r < 4; ++r) {
      rows[r] = LoadLevels<kWhole>(chunk.rows[k + r] + offset, bytes);
    }
    ahead.Ask<kAskedAdding>();
    const std::ptrdiff_t word = StartOf(k / 4, range.padded) + block;
    AddFourRows<type, 0>(rows, s.high + word, s.low + word, tile);
  }
  if constexpr (kInWords<type>) {
    SumTile<type> all;
    LoadTile<type>(sums, all);
    all.AddWidened(tile);
    StoreTile<type>(all, sums);
  } else {
    StoreTile<type>(tile, sums);
  }
}

template <DType type>
void SumInputsOf(const SumInputsParams& p) {
  constexpr int kStep = SumTraits<type>::kLoadBlocks, kTileSums = 2 * 16 * SumTile<type>::kSets;
  SumRange range{0, p.weights.cols / 32, 0, p.weights.cols / 32};
  range.padded = (range.count + 15) / 16 * 16;
  const InputScratch s = LayOutInputs(p.scratch, range.padded);
  const int tiles = (range.count + kStep - 1) / kStep;
  __builtin_memset(s.sums, 0, sizeof(std::int32_t) * tiles * kTileSums);
  BeginInputs(p.limits, range, s);
  const std::uint8_t* rows[2][kRowsTogether];
  SumChunk chunk = RowsFrom(p, 0, rows[0]);
  for (int first = 0, turn = 1; first < p.count; first += kRowsTogether, turn ^= 1) {
    const SumChunk next = RowsFrom(p, first + kRowsTogether, rows[turn]);
    RowsAhead ahead = RowsAhead::Of<type>(next, range);
    RoundInputs<type>(chunk, ahead, range, s);
    int block = 0;
    std::int32_t* sums = s.sums;
    for (; block + kStep <= range.count; block += kStep, sums += kTileSums)
      AddInputTile<type, true>(chunk, ahead, range, s, block, kStep, sums);
    if (block < range.count)
      AddInputTile<type, false>(chunk, ahead, range, s, block, range.count - block, sums);
    chunk = next;
  }
  SumScratch finish = {};
  finish.high_sum = s.high_sum;
  finish.low_sum = s.low_sum;
  for (int block = 0; block < range.count; block += kStep) {
    const std::int32_t* sums = s.sums + StartOf(block / kStep, kTileSums);
    SumTile<type> tile;
    LoadTile<type>(sums, tile);
    OrderedSums<type> ordered;
    OrderSums<type, 0>(tile.high, ordered.high);
    OrderSums<type, 0>(tile.low, ordered.low);
    const int blocks = range.count - block < kStep ? range.count - block : kStep;
    FinishTile<type>(ordered, finish, block, blocks, {nullptr, p.high, p.low});
  }
}

void SumInputs(const SumInputsParams& p) {
  if (p.weights.type == DType::kQ4_0) return SumInputsOf<DType::kQ4_0>(p);
  SumInputsOf<DType::kQ8_0>(p);
}

}  // namespace
}  // namespace thermocline::kernels
