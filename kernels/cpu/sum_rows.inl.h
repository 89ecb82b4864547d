// SumRows of kernels/rows.h: the sum over neuron-major down rows.
//
// In float32 the sum is compute-bound: three instructions for 16 weights of Q4_0 (9 bytes). So the
// row's scale times h becomes a 16-bit coefficient per block, in two signed bytes, and the byte dot
// product adds four rows at once: levels of four rows are interleaved byte by byte, and one
// instruction takes 64 levels to 16 sums. The sums of 128 columns (64 of Q8_0) stay in registers
// while all rows of a chunk pass, and while they do the next chunk's rows are prefetched.
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
  const int* ids;
  const float* h;
  int count;
};

struct SumScratch {
  float* coefficients;  // [rows, padded]
  std::int32_t* high;   // [rows / 4, padded] four rows' high bytes
  std::int32_t* low;    // [rows / 4, padded] low bytes
  float* scale;         // [padded]
  float* minimum;       // [padded]
  float* inverse;       // [padded]
};

inline SumScratch LayOut(std::uint8_t* bytes, int padded) {
  const std::ptrdiff_t area = static_cast<std::ptrdiff_t>(padded) * (kSumChunk + 4);
  auto* floats = reinterpret_cast<float*>((reinterpret_cast<std::uintptr_t>(bytes) + 63) / 64 * 64);
  auto* ints = reinterpret_cast<std::int32_t*>(floats + area);
  auto* rest = reinterpret_cast<float*>(ints + area / 2);
  return {floats, ints, ints + area / 4, rest, rest + padded, rest + 2 * padded};
}

// a and m of 8 blocks from `block` on, a multiple of 8; absent blocks are zeros.
template <DType type>
inline void LoadScales8(const std::uint8_t* row, const SumRange& range, int block, float* a,
                        float* m) {
  using Traits = SumTraits<type>;
  const std::uint8_t* group = row + static_cast<std::ptrdiff_t>(block / 8) *
                                        static_cast<std::ptrdiff_t>(RowBytes(type, 256));
  if constexpr (Traits::kIsK) {
    std::uint32_t words[3];
    std::uint16_t halves[2];
    __builtin_memcpy(halves, group, 4);
    __builtin_memcpy(words, group + 4, 12);
    const float d = HalfToFloat(halves[0]), dmin = -HalfToFloat(halves[1]);
    const auto number = [&](int k) {
      return static_cast<float>((words[k / 5] >> (6 * (k % 5))) & 63);
    };
    for (int k = 0; k < 8; ++k) a[k] = d * number(k);
    for (int k = 8; k < 15; ++k) m[k - 8] = dmin * number(k);
    m[7] =
        dmin * static_cast<float>(words[0] >> 30 | (words[1] >> 30) << 2 | (words[2] >> 30) << 4);
  } else {
    const int count = range.group_blocks(block);
    std::uint16_t halves[16] = {};
    __builtin_memcpy(halves, group, static_cast<std::size_t>(2 * count));
    if constexpr (Traits::kHasMin)
      __builtin_memcpy(halves + 8, group + 2 * count, static_cast<std::size_t>(2 * count));
    float values[16];
    Store(values, LoadF16(halves));
    __builtin_memcpy(a, values, 32);
    __builtin_memcpy(m, values + 8, 32);
  }
}

// Coefficients h * a as floats, their largest and the sums of the minimums.
template <DType type>
void FindCoefficients(const SumRowsParams& p, const SumChunk& chunk, const SumRange& range,
                      const SumScratch& s) {
  for (int b = 0; b < range.padded; b += 16) {
    F32x16 largest = ZeroF(), minimum = ZeroF();
    for (int k = 0; k < chunk.count; ++k) {
      const std::uint8_t* row = p.weights.row(chunk.ids[k]);
      alignas(64) float a[16] = {}, m[16] = {};
      const int block = range.first + b;
      LoadScales8<type>(row, range, block, a, m);
      if (b + 8 < range.count) LoadScales8<type>(row, range, block + 8, a + 8, m + 8);
      const F32x16 h = Set1(chunk.h[k]), c = MulF(h, LoadF32(a));
      Store(s.coefficients + static_cast<std::ptrdiff_t>(k) * range.padded + b, c);
      largest = MaxF(largest, AbsF(c));
      if constexpr (SumTraits<type>::kHasMin) minimum = Fma(h, LoadF32(m), minimum);
    }
    const F32x16 bound = Set1(kActivationMin);
    Store(s.minimum + b, minimum);
    Store(s.scale + b, MulF(largest, Set1(1.0F / kCoefficientMax)));
    const F32x16 inverse = DivF(Set1(kCoefficientMax), MaxF(largest, bound));
    Store(s.inverse + b, SelectAtLeast(bound, largest, ZeroF(), inverse));
  }
}

// Rounds the coefficients and packs each byte of four rows into a word.
void RoundCoefficients(const SumRange& range, int rows, const SumScratch& s) {
  for (int k = 0; k < rows; k += 4) {
    for (int b = 0; b < range.padded; b += 16) {
      const F32x16 inverse = LoadF32(s.inverse + b);
      I32x16 high = ZeroI(), low = ZeroI();
      for (int r = 0; r < 4 && k + r < rows; ++r) {
        const std::ptrdiff_t at = static_cast<std::ptrdiff_t>(k + r) * range.padded + b;
        const I32x16 q = RoundI(MulF(LoadF32(s.coefficients + at), inverse));
        const I32x16 up = ShiftRightI(AddI(q, Set1I(128)), 8);
        high = AddI(high, ShiftLeftI(AndI(up, 255), 8 * r));
        low = AddI(low, ShiftLeftI(AndI(q, 255), 8 * r));
      }
      StoreI32(s.high + static_cast<std::ptrdiff_t>(k / 4) * range.padded + b, high);
      StoreI32(s.low + static_cast<std::ptrdiff_t>(k / 4) * range.padded + b, low);
    }
  }
}

// Integer sums of kLoadBlocks blocks of columns.
template <DType type>
struct SumTile {
  static constexpr int kSets = SumTraits<type>::kBytes ? 4 : 8;
  I32x16 high[kSets], low[kSets];
  I32x16 high_sum, low_sum;  // of the coefficients, a block's in its quarters
};

// The 64 bytes of levels of blocks [block, block + kLoadBlocks) of a row.
template <DType type>
inline const std::uint8_t* LevelsAt(const std::uint8_t* row, const SumRange& range, int block) {
  using Traits = SumTraits<type>;
  return row +
         static_cast<std::ptrdiff_t>(block / 8) * static_cast<std::ptrdiff_t>(RowBytes(type, 256)) +
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
  if constexpr (Traits::kOffset != 0) {
    tile.high_sum = DotBytes(tile.high_sum, OneBytes(), c_high);
    tile.low_sum = DotBytes(tile.low_sum, OneBytes(), c_low);
  }
}

// The tile's sums in the order of columns, the levels' offset taken off.
template <DType type>
void OrderSums(const SumTile<type>& tile, bool want_high, std::int32_t* out) {
  using Traits = SumTraits<type>;
  constexpr int kOffset = Traits::kBytes ? kWideOffset : Traits::kOffset;
  alignas(64) std::int32_t lanes[16], sums[16];
  StoreI32(sums, want_high ? tile.high_sum : tile.low_sum);
  for (int set = 0; set < SumTile<type>::kSets; ++set) {
    StoreI32(lanes, want_high ? tile.high[set] : tile.low[set]);
    for (int quarter = 0; quarter < 4; ++quarter) {
      // Byte j of a nibble block holds columns j and 16 + j; quarters of bytes are half blocks.
      const int column =
          Traits::kBytes ? quarter * 16 + set * 4 : quarter * 32 + set / 4 * 16 + set % 4 * 4;
      for (int c = 0; c < 4; ++c)
        out[column + c] = lanes[quarter * 4 + c] - kOffset * sums[quarter * 4];
    }
  }
}

// y += scale * (256 high + low), + minimum.
template <DType type>
void FinishTile(const SumTile<type>& tile, const SumScratch& s, int block, int blocks, float* out) {
  alignas(64) std::int32_t high[128], low[128];
  OrderSums<type>(tile, true, high);
  OrderSums<type>(tile, false, low);
  for (int c = 0; c < blocks * 32; c += 16) {
    const int b = block + c / 32;
    const F32x16 sum = Fma(Set1(256.0F), ToF32(LoadI32(high + c)), ToF32(LoadI32(low + c)));
    F32x16 y = Fma(Set1(s.scale[b]), sum, LoadF32(out + c));
    if constexpr (SumTraits<type>::kHasMin) y = AddF(y, Set1(s.minimum[b]));
    Store(out + c, y);
  }
}

// Blocks [block, block + blocks) of the range for a chunk of rows; `next` is prefetched.
template <DType type>
void SumOneTile(const SumRowsParams& p, const SumChunk& chunk, const SumChunk& next,
                const SumRange& range, const SumScratch& s, int block, int blocks, float* out) {
  SumTile<type> tile;
  for (int i = 0; i < SumTile<type>::kSets; ++i) tile.high[i] = tile.low[i] = ZeroI();
  tile.high_sum = tile.low_sum = ZeroI();
  const int at = range.first + block;
  const bool whole = blocks == SumTraits<type>::kLoadBlocks;
  for (int k = 0; k < chunk.count; k += 4) {
    U8x64 rows[4];
    for (int r = 0; r < 4; ++r) {
      const int i = k + r < chunk.count ? k + r : chunk.count - 1;  // its coefficient is zero
      const std::uint8_t* levels = LevelsAt<type>(p.weights.row(chunk.ids[i]), range, at);
      if (whole) {
        rows[r] = LoadU8(levels);
      } else {
        alignas(64) std::uint8_t part[64] = {};
        __builtin_memcpy(part, levels,
                         static_cast<std::size_t>(blocks * SumTraits<type>::kBlockBytes));
        rows[r] = LoadU8(part);
      }
      if (k + r < next.count) Prefetch(LevelsAt<type>(p.weights.row(next.ids[k + r]), range, at));
    }
    const std::ptrdiff_t group = static_cast<std::ptrdiff_t>(k / 4) * range.padded + block;
    AddFourRows<type>(rows, s.high + group, s.low + group, tile);
  }
  FinishTile<type>(tile, s, block, blocks, out + block * 32);
}

// The run of rows of one chunk from `first` on.
inline SumChunk ChunkAt(const SumRowsParams& p, int first) {
  int last = first;
  if (first < p.count) {
    const int chunk = p.ids[first] / kSumChunk;
    while (last < p.count && p.ids[last] / kSumChunk == chunk) ++last;
  }
  return {p.ids + first, p.h + first, last - first};
}

template <DType type>
void SumQuantized(const SumRowsParams& p) {
  SumRange range{p.col_begin / 32, (p.col_end - p.col_begin) / 32, 0, p.weights.cols / 32};
  range.padded = (range.count + 15) / 16 * 16;
  const SumScratch scratch = LayOut(p.scratch, range.padded);
  constexpr int kStep = SumTraits<type>::kLoadBlocks;
  for (int first = 0; first < p.count;) {
    const SumChunk chunk = ChunkAt(p, first);
    const SumChunk next = ChunkAt(p, first + chunk.count);
    for (int t = 0; t < p.tokens; ++t) {
      SumChunk mine = chunk;
      mine.h += static_cast<std::ptrdiff_t>(t) * p.h_stride;
      FindCoefficients<type>(p, mine, range, scratch);
      RoundCoefficients(range, mine.count, scratch);
      float* out = p.out + static_cast<std::ptrdiff_t>(t) * p.out_stride + p.col_begin;
      for (int block = 0; block < range.count; block += kStep) {
        const int blocks = range.count - block < kStep ? range.count - block : kStep;
        SumOneTile<type>(p, mine, next, range, scratch, block, blocks, out);
      }
    }
    first += chunk.count;
  }
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
  for (int t = 0; t < p.tokens; ++t) {
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
