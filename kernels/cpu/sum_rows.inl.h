// SumRows of kernels/rows.h: the sum over neuron-major down rows.
//
// In float32 the sum is compute-bound: three instructions for 16 weights of Q4_0 (9 bytes). So the
// row's scale times h becomes a 16-bit coefficient per block, in two signed bytes, and the byte dot
// product adds four rows at once: levels of four rows are interleaved byte by byte, and one
// instruction takes 64 levels to 16 sums. The sums of 128 columns (64 of Q8_0) stay in registers
// while all rows of a chunk pass, and while they do the next chunk's rows are prefetched.
//
// Measured on one Zen 4 core, D 4096, every row of 256 in the cache, GB/s of Q4_0:
//   scales through memory, a store behind every load                          7
//   scales straight into vectors, sums in registers                          24
//   coefficients of four rows split into bytes at once                       26
// Every tenth row, where each run of rows has few: 12; with 1,024 rows a run and sums put in order
// in vectors 22 (from memory 18); Q4_K 9, with its six-bit scales unpacked in vectors 16. A last
// group of 256 columns takes its scales straight into a vector like two do: on one Zen 5 core a
// model of D 256 in the cache decodes 6,500 tokens/s where it made 4,890. In
// float32: three instructions for 9 bytes, at most 22 on this core, without the loads.
//
// As a part of a shared sum (shared_sum.h) the scales are read twice, for the maxima and for the
// coefficients, and the integer sums are stored instead of scaled.
//
// Included after rows.inl.h by one translation unit for each ISA.
#include "kernels/cpu/sum_rows_coefficients.inl.h"
//
#include "kernels/cpu/sum_rows_tile.inl.h"

namespace thermocline::kernels {
namespace {

// The run of rows of one chunk from `first` on; `rows` receives their addresses.
inline SumChunk ChunkAt(const SumRowsParams& p, int first, const std::uint8_t** rows) {
  int count = 0;
  if (first < p.count) {
    const int chunk = p.ids[first] / kSumChunk;
    for (; first + count < p.count && p.ids[first + count] / kSumChunk == chunk; ++count)
      rows[count] = p.weights.row(p.ids[first + count]);
    for (int i = count; i % 4 != 0; ++i) rows[i] = rows[count - 1];
  }
  return {rows, p.h + first, count};
}

// Prefetches the rows of the first chunk, which no earlier chunk has prefetched.
template <DType type>
void PrefetchRange(const SumChunk& chunk, const SumRange& range) {
  constexpr std::ptrdiff_t kGroupBytes = RowBytes(type, 256);
  const std::ptrdiff_t begin = range.first / 8 * kGroupBytes,
                       end = (range.first + range.count + 7) / 8 * kGroupBytes;
  for (int k = 0; k < chunk.count; ++k) {
    for (std::ptrdiff_t at = begin; at < end; at += 64) Prefetch(chunk.rows[k] + at);
  }
}

// The rows of a chunk whose h is not zero.
inline SumChunk WithoutZeros(const SumChunk& chunk, const SumScratch& s) {
  int count = 0;
  for (int k = 0; k < chunk.count; ++k) {
    s.chosen[count] = chunk.rows[k];
    s.chosen_h[count] = chunk.h[k];
    count += chunk.h[k] != 0 ? 1 : 0;
  }
  for (int i = count; count > 0 && i % 4 != 0; ++i) s.chosen[i] = s.chosen[count - 1];
  return {s.chosen, s.chosen_h, count};
}

// Every block of the range for one chunk's rows.
template <DType type>
void SumOneChunk(const SumChunk& chunk, const SumChunk& next, const SumRange& range,
                 const SumScratch& scratch, const SumTarget& target) {
  constexpr int kStep = SumTraits<type>::kLoadBlocks;
  int block = 0;
  for (; block + kStep <= range.count; block += kStep)
    SumOneTile<type, true>(chunk, next, range, scratch, block, kStep, target);
  if (block < range.count)
    SumOneTile<type, false>(chunk, next, range, scratch, block, range.count - block, target);
}

// Index of the first block of the range in one token's and run's [D / 32].
inline std::ptrdiff_t SharedAt(const SumRowsParams& p, const SumRange& range, int token, int run) {
  const std::ptrdiff_t row = StartOf(token, NumSumRuns(p.weights.rows)) + run;
  return row * range.row_blocks + range.first;
}

// One token's chunk as a part of a shared sum.
template <DType type>
void ShareChunk(const SumRowsParams& p, const SumChunk& chunk, const SumChunk& next,
                const SumRange& range, const SumScratch& scratch, std::ptrdiff_t at) {
  const SharedSum& part = *p.shared;
  if (part.limits == nullptr) return FindMaxima<type>(chunk, range, part.maxima + at);
  FindCoefficients<type>(chunk, range, part.limits + at, scratch);
  RoundCoefficients(range, chunk.count, scratch);
  SumOneChunk<type>(chunk, next, range, scratch,
                    {nullptr, part.high + 32 * at, part.low + 32 * at});
  if (SumTraits<type>::kHasMin) {
    __builtin_memcpy(part.minimums + at, scratch.minimum, sizeof(float) * range.count);
  }
}

// The parts of runs without rows.
inline void ShareNothing(const SumRowsParams& p, const SumRange& range) {
  const SharedSum& part = *p.shared;
  const std::size_t count = range.count;
  for (int i = 0; i < p.tokens * NumSumRuns(p.weights.rows); ++i) {
    const std::ptrdiff_t at = SharedAt(p, range, 0, i);
    if (part.limits == nullptr) {
      __builtin_memset(part.maxima + at, 0, 4 * count);
      continue;
    }
    __builtin_memset(part.high + 32 * at, 0, 32 * 4 * count);
    __builtin_memset(part.low + 32 * at, 0, 32 * 4 * count);
    if (part.minimums != nullptr) __builtin_memset(part.minimums + at, 0, 4 * count);
  }
}

template <DType type>
void SumQuantized(const SumRowsParams& p) {
  SumRange range{p.col_begin / 32, (p.col_end - p.col_begin) / 32, 0, p.weights.cols / 32};
  range.padded = (range.count + 15) / 16 * 16;
  const SumScratch scratch = LayOut(p.scratch, range.padded);
  if (p.shared != nullptr) ShareNothing(p, range);
  SumChunk chunk = ChunkAt(p, 0, scratch.rows[0]);
  PrefetchRange<type>(chunk, range);
  for (int first = 0, turn = 1; first < p.count; turn ^= 1) {
    const SumChunk next = ChunkAt(p, first + chunk.count, scratch.rows[turn]);
    for (int t = 0; t < p.tokens; ++t) {
      SumChunk mine = chunk;
      mine.h += StartOf(t, p.h_stride);
      if (p.skip_zeros) mine = WithoutZeros(mine, scratch);
      if (p.shared != nullptr) {
        ShareChunk<type>(p, mine, next, range, scratch,
                         SharedAt(p, range, t, p.ids[first] / kSumChunk));
        continue;
      }
      FindCoefficients<type>(mine, range, nullptr, scratch);
      RoundCoefficients(range, mine.count, scratch);
      SumOneChunk<type>(mine, next, range, scratch,
                        {p.out + StartOf(t, p.out_stride) + p.col_begin, nullptr, nullptr});
    }
    first += chunk.count;
    chunk = next;
  }
}

// y of 16 columns from `c` on.
inline F32x16 FinishColumns(const FinishSumParams& p, int c) {
  F32x16 y = ZeroF();
  for (int run = 0; run < p.runs; ++run) {
    const std::ptrdiff_t at = StartOf(run, p.cols) + c;
    I32x16 high = ZeroI(), low = ZeroI();
    float minimums = 0;
    for (int i = 0; i < p.num_parts; ++i) {
      const FinishSumParams::Part& part = p.parts[i];
      high = AddI(high, LoadI32(part.high + at));
      low = AddI(low, LoadI32(part.low + at));
      if (part.minimums != nullptr) minimums += part.minimums[at / 32];
    }
    const F32x16 scale = MulF(Set1(p.limits[at / 32]), Set1(1.0F / kCoefficientMax));
    y = AddF(Fma(scale, Fma(Set1(256.0F), ToF32(high), ToF32(low)), y), Set1(minimums));
  }
  return y;
}

void FinishSum(const FinishSumParams& p) {
  for (int c = p.col_begin; c < p.col_end; c += 16) Store(p.out + c, FinishColumns(p, c));
}

// N * 16 columns from `col` on.
template <int N, Column kind>
void SumFloatColumns(const SumRowsParams& p, int token, int col, int count) {
  const float* h = p.h + StartOf(token, p.h_stride);
  F32x16 acc[N];
  for (F32x16& each : acc) each = ZeroF();
  const int bytes = Traits(p.weights.type).block_bytes;
  for (int k = 0; k < p.count; ++k) {
    const std::uint8_t* row = p.weights.row(p.ids[k]) + StartOf(col, bytes);
    alignas(64) std::uint8_t part[64] = {};
    if (count < 16) {
      __builtin_memcpy(part, row, count * bytes);
      row = part;
    }
    if (p.skip_zeros && h[k] == 0) continue;
    const F32x16 scale = Set1(h[k]);
    for (int i = 0; i < N; ++i)
      acc[i] = Fma(scale, LoadColumn<kind>(row + i * 16 * bytes, 0), acc[i]);
  }
  float* out = p.out + StartOf(token, p.out_stride) + col;
  for (int i = 0; i < N; ++i) StorePartial(out + 16 * i, count < 16 ? count : 16, acc[i]);
}

template <Column kind>
void SumFloats(const SumRowsParams& p) {
  for (int t = 0; t < p.tokens; ++t) {
    int col = p.col_begin;
    for (; col + 64 <= p.col_end; col += 64) SumFloatColumns<4, kind>(p, t, col, 16);
    for (; col < p.col_end; col += 16)
      SumFloatColumns<1, kind>(p, t, col, p.col_end - col < 16 ? p.col_end - col : 16);
  }
}

void SumRows(const SumRowsParams& p) {
  for (int t = 0; t < p.tokens && p.shared == nullptr; ++t) {
    float* out = p.out + StartOf(t, p.out_stride);
    for (int c = p.col_begin; c < p.col_end; ++c) out[c] = 0;
  }
  ForDType(p.weights.type, [&](auto type) {
    if constexpr (!Traits(type).quantized) {
      SumFloats<ColumnOf(type)>(p);
    } else if constexpr (CanSumRows(type)) {
      SumQuantized<type>(p);
    }
  });
}

}  // namespace
}  // namespace thermocline::kernels
