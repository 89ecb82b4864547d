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
// in vectors 22 (from memory 18); Q4_K 9, with its six-bit scales unpacked in vectors 16. In
// float32: three instructions for 9 bytes, at most 22 on this core, without the loads.
//
// As a part of a shared sum (shared_sum.h) the scales are read twice, for the maxima and for the
// coefficients, and the integer sums are stored instead of scaled.
//
// Included after rows.inl.h by one translation unit for each ISA.
namespace thermocline::kernels {
namespace {

// How a type's rows lie, in groups of 256 columns (fewer at the row's end).
template <DType type>
struct SumTraits {
  static constexpr bool kBytes = type == DType::kQ8_0;  // a level is a byte, else a nibble
  static constexpr int kLoadBlocks = kBytes ? 2 : 4;    // blocks of 32 columns in 64 bytes
  static constexpr int kBlockBytes = kBytes ? 32 : 16;  // levels of a block
  static constexpr int kOffset = LayoutOf(type).offset;
  static constexpr bool kHasMin = LayoutOf(type).min >= 0;
  static constexpr bool kIsK = type == DType::kQ4_K;

  static constexpr int HeaderBytes(int blocks) { return kIsK ? 16 : blocks * (kHasMin ? 4 : 2); }
};

// The columns of one call, as blocks of 32.
struct SumRange {
  int first, count;  // blocks
  int padded;        // count, up to a multiple of 16
  int row_blocks;    // of a whole row

  int group_blocks(int block) const {  // blocks of the group that `block` is in
    const int begin = block / 8 * 8;
    return row_blocks - begin < 8 ? row_blocks - begin : 8;
  }
};

// The rows of one chunk of neurons.
struct SumChunk {
  const std::uint8_t* const* rows;  // [count], then the last one again up to a multiple of 4
  const float* h;
  int count;
};

struct SumScratch {
  float* coefficients;           // [rows, padded]
  std::int32_t* high;            // [rows / 4, padded] four rows' high bytes
  std::int32_t* low;             // [rows / 4, padded] low bytes
  float* scale;                  // [padded]
  float* minimum;                // [padded]
  float* inverse;                // [padded]
  std::int32_t* high_sum;        // [padded] sums of the high bytes
  std::int32_t* low_sum;         // [padded]
  const std::uint8_t** rows[2];  // [kSumChunk + 4] of this chunk and the next
  const std::uint8_t** chosen;   // [kSumChunk + 4] rows whose h is not zero
  float* chosen_h;
};

inline SumScratch LayOut(std::uint8_t* bytes, int padded) {
  const std::ptrdiff_t area = static_cast<std::ptrdiff_t>(padded) * (kSumChunk + 4);
  auto* floats = reinterpret_cast<float*>((reinterpret_cast<std::uintptr_t>(bytes) + 63) / 64 * 64);
  auto* ints = reinterpret_cast<std::int32_t*>(floats + area);
  auto* rest = reinterpret_cast<float*>(ints + area / 2);
  auto* sums = reinterpret_cast<std::int32_t*>(rest + 3 * padded);
  auto** rows = reinterpret_cast<const std::uint8_t**>(sums + 2 * padded);
  return {.coefficients = floats,
          .high = ints,
          .low = ints + area / 4,
          .scale = rest,
          .minimum = rest + padded,
          .inverse = rest + 2 * padded,
          .high_sum = sums,
          .low_sum = sums + padded,
          .rows = {rows, rows + kSumChunk + 4},
          .chosen = rows + 2 * (kSumChunk + 4),
          .chosen_h = reinterpret_cast<float*>(rows + 3 * (kSumChunk + 4))};
}

// a and m of 8 blocks from `block` on, a multiple of 8; absent blocks are zeros.
template <DType type>
inline void LoadScales8(const std::uint8_t* row, const SumRange& range, int block, float* a,
                        float* m) {
  using Traits = SumTraits<type>;
  const std::uint8_t* group = row + static_cast<std::ptrdiff_t>(block / 8) *
                                        static_cast<std::ptrdiff_t>(RowBytes(type, 256));
  const int count = range.group_blocks(block);
  std::uint16_t halves[16] = {};
  if (count == 8) {
    __builtin_memcpy(halves, group, Traits::kHasMin ? 32 : 16);
  } else {
    for (int i = 0; i < count; ++i) {
      __builtin_memcpy(halves + i, group + 2 * i, 2);
      if constexpr (Traits::kHasMin) __builtin_memcpy(halves + 8 + i, group + 2 * (count + i), 2);
    }
  }
  float values[16];
  Store(values, LoadF16(halves));
  __builtin_memcpy(a, values, 32);
  __builtin_memcpy(m, values + 8, 32);
}

// `first` in the lower eight lanes, `second` in the others.
inline F32x16 TwoHalves(float first, float second) {
  alignas(64) static constexpr float kLanes[16] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1};
  return SelectAtLeast(LoadF32(kLanes), Set1(1), Set1(second), Set1(first));
}

// a and m of sub-blocks [block, block + count) of Q4_K, two blocks at most.
inline void LoadSixBitScales(const std::uint8_t* row, int block, int count, F32x16& a, F32x16& m) {
  const std::uint8_t* first =
      row + block / 8 * static_cast<std::ptrdiff_t>(RowBytes(DType::kQ4_K, 256));
  const std::uint8_t* second = count > 8 ? first + RowBytes(DType::kQ4_K, 256) : first;
  alignas(64) float d[16];  // d and dmin lead both blocks
  Store(d, LoadF16Pair(first, second));
  const I32x16 left = SixBitNumbers(first + 4), right = SixBitNumbers(second + 4);
  a = MulF(ToF32(LowHalves(left, right)), TwoHalves(d[0], count > 8 ? d[8] : 0));
  m = MulF(ToF32(HighHalves(left, right)), TwoHalves(-d[1], count > 8 ? -d[9] : 0));
}

// The same of `count` blocks, at most 16.
template <DType type>
inline void LoadScales(const std::uint8_t* row, const SumRange& range, int block, int count,
                       F32x16& a, F32x16& m) {
  using Traits = SumTraits<type>;
  if constexpr (Traits::kIsK) {
    return LoadSixBitScales(row, block, count, a, m);
  } else {
    if (count >= 16 && range.row_blocks - block >= 16) {  // two whole groups
      constexpr auto kGroupBytes = static_cast<std::ptrdiff_t>(RowBytes(type, 256));
      const std::uint8_t* group = row + block / 8 * kGroupBytes;
      a = LoadF16Pair(group, group + kGroupBytes);
      m = Traits::kHasMin ? LoadF16Pair(group + 16, group + kGroupBytes + 16) : ZeroF();
      return;
    }
  }
  if constexpr (!Traits::kIsK) {
    alignas(64) float scales[16] = {}, minimums[16] = {};
    LoadScales8<type>(row, range, block, scales, minimums);
    if (count > 8) LoadScales8<type>(row, range, block + 8, scales + 8, minimums + 8);
    a = LoadF32(scales);
    m = LoadF32(minimums);
  }
}

// The largest |h * a| of each block, to `out`.
template <DType type>
void FindMaxima(const SumChunk& chunk, const SumRange& range, float* out) {
  for (int b = 0; b < range.padded; b += 16) {
    F32x16 largest = ZeroF();
    for (int k = 0; k < chunk.count; ++k) {
      F32x16 a, m;
      LoadScales<type>(chunk.rows[k], range, range.first + b, range.count - b, a, m);
      largest = MaxF(largest, AbsF(MulF(Set1(chunk.h[k]), a)));
    }
    StorePartial(out + b, range.count - b < 16 ? range.count - b : 16, largest);
  }
}

// Coefficients h * a as floats, the sums of the minimums, and what the coefficients are rounded by:
// their largest, or `limits` of the range's blocks.
template <DType type>
void FindCoefficients(const SumChunk& chunk, const SumRange& range, const float* limits,
                      const SumScratch& s) {
  for (int b = 0; b < range.padded; b += 16) {
    F32x16 largest = ZeroF(), minimum = ZeroF();
    for (int k = 0; k < chunk.count; ++k) {
      F32x16 a, m;
      LoadScales<type>(chunk.rows[k], range, range.first + b, range.count - b, a, m);
      const F32x16 h = Set1(chunk.h[k]), c = MulF(h, a);
      Store(s.coefficients + static_cast<std::ptrdiff_t>(k) * range.padded + b, c);
      largest = MaxF(largest, AbsF(c));
      if constexpr (SumTraits<type>::kHasMin) minimum = Fma(h, m, minimum);
    }
    if (limits != nullptr) {
      alignas(64) float given[16] = {};
      __builtin_memcpy(given, limits + b,
                       4 * static_cast<std::size_t>(range.count - b < 16 ? range.count - b : 16));
      largest = LoadF32(given);
    }
    const F32x16 bound = Set1(kActivationMin);
    Store(s.minimum + b, minimum);
    Store(s.scale + b, MulF(largest, Set1(1.0F / kCoefficientMax)));
    const F32x16 inverse = DivF(Set1(kCoefficientMax), MaxF(largest, bound));
    Store(s.inverse + b, SelectAtLeast(bound, largest, ZeroF(), inverse));
  }
}

// Rounds the coefficients, packs each byte of four rows into a word and adds the bytes up.
void RoundCoefficients(const SumRange& range, int rows, const SumScratch& s) {
  for (int b = 0; b < range.padded; b += 16) {
    const F32x16 inverse = LoadF32(s.inverse + b);
    I32x16 high_sum = ZeroI(), low_sum = ZeroI();
    for (int k = 0; k < rows; k += 4) {
      I32x16 q[4], high, low;
      for (int r = 0; r < 4; ++r) {
        const float* c = s.coefficients + static_cast<std::ptrdiff_t>(k + r) * range.padded + b;
        q[r] = k + r < rows ? RoundI(MulF(LoadF32(c), inverse)) : ZeroI();
      }
      SplitBytes(q, high, low);
      high_sum = AddBytes(high_sum, high);
      low_sum = AddBytes(low_sum, low);
      StoreI32(s.high + static_cast<std::ptrdiff_t>(k / 4) * range.padded + b, high);
      StoreI32(s.low + static_cast<std::ptrdiff_t>(k / 4) * range.padded + b, low);
    }
    StoreI32(s.high_sum + b, high_sum);
    StoreI32(s.low_sum + b, low_sum);
  }
}

// Integer sums of kLoadBlocks blocks of columns.
template <DType type>
struct SumTile {
  static constexpr int kSets = SumTraits<type>::kBytes ? 4 : 8;
  I32x16 high[kSets], low[kSets];
};

// Where in a row the 64 bytes of levels of blocks [block, block + kLoadBlocks) are.
template <DType type>
inline std::ptrdiff_t LevelsOffset(const SumRange& range, int block) {
  using Traits = SumTraits<type>;
  return static_cast<std::ptrdiff_t>(block / 8) * static_cast<std::ptrdiff_t>(RowBytes(type, 256)) +
         Traits::HeaderBytes(range.group_blocks(block)) + block % 8 * Traits::kBlockBytes;
}

// Adds four rows' levels times their coefficients.
template <DType type>
inline void AddFourRows(const U8x64 (&rows)[4], const std::int32_t* high, const std::int32_t* low,
                        SumTile<type>& tile) {
  using Traits = SumTraits<type>;
  U8x64 mixed[4];
  InterleaveRows(rows, mixed);
  const U8x64 c_high = Traits::kBytes ? SpreadTwo(high) : SpreadFour(high);
  const U8x64 c_low = Traits::kBytes ? SpreadTwo(low) : SpreadFour(low);
  for (int i = 0; i < 4; ++i) {
    if constexpr (Traits::kBytes) {
      tile.high[i] = DotBytesWide(tile.high[i], mixed[i], c_high);
      tile.low[i] = DotBytesWide(tile.low[i], mixed[i], c_low);
    } else {
      const U8x64 first = LowNibbles(mixed[i]), second = HighNibbles(mixed[i]);
      tile.high[i] = DotBytes(tile.high[i], first, c_high);
      tile.low[i] = DotBytes(tile.low[i], first, c_low);
      tile.high[4 + i] = DotBytes(tile.high[4 + i], second, c_high);
      tile.low[4 + i] = DotBytes(tile.low[4 + i], second, c_low);
    }
  }
}

// The tile's sums in the order of columns.
template <DType type>
inline void OrderSums(const I32x16 (&sets)[SumTile<type>::kSets], std::int32_t* out) {
  for (int set = 0; set < SumTile<type>::kSets; ++set) {
    alignas(64) std::int32_t lanes[16];
    StoreI32(lanes, sets[set]);
    for (int quarter = 0; quarter < 4; ++quarter) {
      // Byte j of a nibble block holds columns j and 16 + j; quarters of bytes are half blocks.
      const int column = SumTraits<type>::kBytes ? quarter * 16 + set * 4
                                                 : quarter * 32 + set / 4 * 16 + set % 4 * 4;
      Store128(out + column, Load128(lanes + quarter * 4));
    }
  }
}

// Where a chunk's sums of a token go, from the range's first column on: to y, or as a part of a
// shared sum.
struct SumTarget {
  float* out;
  std::int32_t *high, *low;  // not null: instead of `out`
};

// y += scale * (256 high + low), the levels' offset taken off, + minimum.
template <DType type>
void FinishTile(const SumTile<type>& tile, const SumScratch& s, int block, int blocks,
                const SumTarget& target) {
  using Traits = SumTraits<type>;
  constexpr int kOffset = Traits::kBytes ? kWideOffset : Traits::kOffset;
  alignas(64) std::int32_t high[128], low[128];
  OrderSums<type>(tile.high, high);
  OrderSums<type>(tile.low, low);
  for (int c = 0; c < blocks * 32; c += 16) {
    const int b = block + c / 32;
    const I32x16 up = SubI(LoadI32(high + c), Set1I(kOffset * s.high_sum[b])),
                 down = SubI(LoadI32(low + c), Set1I(kOffset * s.low_sum[b]));
    const int at = block * 32 + c;
    if (target.high != nullptr) {
      StoreI32(target.high + at, up);
      StoreI32(target.low + at, down);
      continue;
    }
    F32x16 y =
        Fma(Set1(s.scale[b]), Fma(Set1(256.0F), ToF32(up), ToF32(down)), LoadF32(target.out + at));
    if constexpr (Traits::kHasMin) y = AddF(y, Set1(s.minimum[b]));
    Store(target.out + at, y);
  }
}

// 64 bytes of levels, of which `bytes` are the row's.
template <bool kWhole>
inline U8x64 LoadLevels(const std::uint8_t* levels, int bytes) {
  if constexpr (kWhole) return LoadU8(levels);
  alignas(64) std::uint8_t part[64] = {};
  for (int i = 0; i < bytes; i += 16) Store128(part + i, Load128(levels + i));
  return LoadU8(part);
}

// Blocks [block, block + blocks) of the range for a chunk of rows; `next` is prefetched.
template <DType type, bool kWhole>
void SumOneTile(const SumChunk& chunk, const SumChunk& next, const SumRange& range,
                const SumScratch& s, int block, int blocks, const SumTarget& target) {
  SumTile<type> tile;
  for (int i = 0; i < SumTile<type>::kSets; ++i) tile.high[i] = tile.low[i] = ZeroI();
  const std::ptrdiff_t offset = LevelsOffset<type>(range, range.first + block);
  const int bytes = blocks * SumTraits<type>::kBlockBytes;
  const std::int32_t *high = s.high + block, *low = s.low + block;
  for (int k = 0; k < chunk.count; k += 4, high += range.padded, low += range.padded) {
    U8x64 rows[4];
    for (int r = 0; r < 4; ++r)  // beyond the last: times zero
      rows[r] = LoadLevels<kWhole>(chunk.rows[k + r] + offset, bytes);
    if (k < next.count) {
      for (int r = 0; r < 4; ++r) Prefetch(next.rows[k + r] + offset);
    }
    AddFourRows<type>(rows, high, low, tile);
  }
  FinishTile<type>(tile, s, block, blocks, target);
}

// The run of rows of one chunk from `first` on; `rows` receives where they are.
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

// The first chunk has no chunk before it that could ask for its rows.
template <DType type>
void PrefetchRange(const SumChunk& chunk, const SumRange& range) {
  constexpr auto kGroupBytes = static_cast<std::ptrdiff_t>(RowBytes(type, 256));
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
  const std::ptrdiff_t row = static_cast<std::ptrdiff_t>(token) * NumSumRuns(p.weights.rows) + run;
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
    __builtin_memcpy(part.minimums + at, scratch.minimum,
                     4 * static_cast<std::size_t>(range.count));
  }
}

// The parts of runs without rows.
inline void ShareNothing(const SumRowsParams& p, const SumRange& range) {
  const SharedSum& part = *p.shared;
  const auto count = static_cast<std::size_t>(range.count);
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
      mine.h += static_cast<std::ptrdiff_t>(t) * p.h_stride;
      if (p.skip_zeros) mine = WithoutZeros(mine, scratch);
      if (p.shared != nullptr) {
        ShareChunk<type>(p, mine, next, range, scratch,
                         SharedAt(p, range, t, p.ids[first] / kSumChunk));
        continue;
      }
      FindCoefficients<type>(mine, range, nullptr, scratch);
      RoundCoefficients(range, mine.count, scratch);
      SumOneChunk<type>(
          mine, next, range, scratch,
          {p.out + static_cast<std::ptrdiff_t>(t) * p.out_stride + p.col_begin, nullptr, nullptr});
    }
    first += chunk.count;
    chunk = next;
  }
}

// y of 16 columns from `c` on.
inline F32x16 FinishColumns(const FinishSumParams& p, int c) {
  F32x16 y = ZeroF();
  for (int run = 0; run < p.runs; ++run) {
    const std::ptrdiff_t at = static_cast<std::ptrdiff_t>(run) * p.cols + c;
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
  const float* h = p.h + static_cast<std::ptrdiff_t>(token) * p.h_stride;
  F32x16 acc[N];
  for (F32x16& each : acc) each = ZeroF();
  const int bytes = Traits(p.weights.type).block_bytes;
  for (int k = 0; k < p.count; ++k) {
    const std::uint8_t* row = p.weights.row(p.ids[k]) + static_cast<std::ptrdiff_t>(col) * bytes;
    alignas(64) std::uint8_t part[64] = {};
    if (count < 16) {
      __builtin_memcpy(part, row, static_cast<std::size_t>(count * bytes));
      row = part;
    }
    if (p.skip_zeros && h[k] == 0) continue;
    const F32x16 scale = Set1(h[k]);
    for (int i = 0; i < N; ++i)
      acc[i] = Fma(scale, LoadColumn<kind>(row + i * 16 * bytes, 0), acc[i]);
  }
  float* out = p.out + static_cast<std::ptrdiff_t>(token) * p.out_stride + col;
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
    float* out = p.out + static_cast<std::ptrdiff_t>(t) * p.out_stride;
    for (int c = p.col_begin; c < p.col_end; ++c) out[c] = 0;
  }
  switch (p.weights.type) {
    case DType::kF32:
      return SumFloats<Column::kF32>(p);
    case DType::kF16:
      return SumFloats<Column::kF16>(p);
    case DType::kBF16:
      return SumFloats<Column::kBF16>(p);
    case DType::kQ8_0:
      return SumQuantized<DType::kQ8_0>(p);
    case DType::kQ4_0:
      return SumQuantized<DType::kQ4_0>(p);
    case DType::kQ4_1:
      return SumQuantized<DType::kQ4_1>(p);
    case DType::kQ4_K:
      return SumQuantized<DType::kQ4_K>(p);
    default:
      return;  // CanSumRows says which types there are
  }
}

}  // namespace
}  // namespace thermocline::kernels
