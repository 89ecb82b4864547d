// The tiles of SumRows: integer sums of a few blocks of columns over the rows of a chunk.
//
// Included by sum_rows.inl.h, after the coefficients.
namespace thermocline::kernels {
namespace {

// Integer sums of one pass over kLoadBlocks blocks of columns.
template <DType type>
struct SumTile {
  static constexpr int kSets = SumTraits<type>::kBytes ? 4 : 8;
  I32x16 high[kSets], low[kSets];

  void Clear() {
    for (int i = 0; i < kSets; ++i) high[i] = low[i] = ZeroI();
  }
  // Sums in pairs of words.
  void AddWidened(const SumTile& words) requires kSumsInWords {
    for (int i = 0; i < kSets; ++i) {
      high[i] = AddI(high[i], WidenPairs(words.high[i]));
      low[i] = AddI(low[i], WidenPairs(words.low[i]));
    }
  }
};

// Sums of kLoadBlocks blocks in the order of columns.
template <DType type>
struct OrderedSums {
  static constexpr int kColumns = 32 * SumTraits<type>::kLoadBlocks;
  alignas(64) std::int32_t high[kColumns], low[kColumns];
};

// Returns the offset in a row of the 64 bytes of levels of blocks [block, block + kLoadBlocks).
template <DType type>
inline std::ptrdiff_t LevelsOffset(const SumRange& range, int block) {
  using Traits = SumTraits<type>;
  return block / 8 * RowBytes(type, 256) + Traits::HeaderBytes(range.group_blocks(block)) +
         block % 8 * Traits::kBlockBytes;
}

// Products of levels and coefficients, added up: in 32 bits, or, where the ISA multiplies bytes to
// words and the levels are nibbles, in words. A pair of products is at most 15 * 128 * 2, so
// kRunsInWords of them fit.
constexpr int kRunsInWords = 8;
template <DType type>
constexpr bool kInWords = kSumsInWords && !SumTraits<type>::kBytes;

// The levels of bytes that hold several, as set 4 * `set` + i of a pass has them.
template <DType type, int pass, int set>
inline U8x64 PackedLevels(U8x64 bytes) {
  if constexpr (SumTraits<type>::kTwoBits) return Bits<4 * pass + 2 * set, 2>(bytes);
  if constexpr (set == 1) return HighNibbles(bytes);
  return LowNibbles(bytes);
}

// A four rows' word of coefficients in every lane that it belongs to. Blocks of 256 have one for
// all of their blocks of 32.
template <DType type>
inline U8x64 SpreadCoefficients(const std::int32_t* words) {
  constexpr bool kTwo = SumTraits<type>::kBytes || SumTraits<type>::kTwoBits;
  if constexpr (kTwo) return SpreadTwo(words);
  return SpreadFour(words);
}

// Adds four rows' levels times their coefficients.
template <DType type, int pass>
inline void AddFourRows(const U8x64 (&rows)[4], const std::int32_t* high, const std::int32_t* low,
                        SumTile<type>& tile) {
  using Traits = SumTraits<type>;
  U8x64 mixed[4];
  InterleaveRows(rows, mixed);
  const U8x64 c_high = SpreadCoefficients<type>(high), c_low = SpreadCoefficients<type>(low);
  for (int i = 0; i < 4; ++i) {
    if constexpr (Traits::kBytes) {
      tile.high[i] = DotBytesWide(tile.high[i], mixed[i], c_high);
      tile.low[i] = DotBytesWide(tile.low[i], mixed[i], c_low);
    } else {
      const U8x64 first = PackedLevels<type, pass, 0>(mixed[i]),
                  second = PackedLevels<type, pass, 1>(mixed[i]);
      tile.high[i] = AddNibbleProducts(tile.high[i], first, c_high);
      tile.low[i] = AddNibbleProducts(tile.low[i], first, c_low);
      tile.high[4 + i] = AddNibbleProducts(tile.high[4 + i], second, c_high);
      tile.low[4 + i] = AddNibbleProducts(tile.low[4 + i], second, c_low);
    }
  }
}

// The first of the four columns that quarter `quarter` of a set holds.
template <DType type, int pass>
constexpr int ColumnOf(int set, int quarter) {
  if (SumTraits<type>::kBytes) return quarter * 16 + set * 4;
  // Bits 2j of byte 4i + k hold column 16i + 4j + k.
  if (SumTraits<type>::kTwoBits) return quarter * 64 + set % 4 * 16 + (2 * pass + set / 4) * 4;
  // Byte j of a nibble block holds columns j and 16 + j; quarters of bytes are half blocks.
  return quarter * 32 + set / 4 * 16 + set % 4 * 4;
}

// A pass's sums in the order of columns.
template <DType type, int pass>
inline void OrderSums(const I32x16 (&sets)[SumTile<type>::kSets], std::int32_t* out) {
  for (int set = 0; set < SumTile<type>::kSets; ++set) {
    alignas(64) std::int32_t lanes[16];
    StoreI32(lanes, sets[set]);
    for (int quarter = 0; quarter < 4; ++quarter)
      Store128(out + ColumnOf<type, pass>(set, quarter), Load128(lanes + quarter * 4));
  }
}

// The target of a chunk's sums of a token, from the range's first column on: to y, or as a part of
// a shared sum.
struct SumTarget {
  float* out;
  std::int32_t *high, *low;  // not null: instead of `out`
};

// y += scale * (256 high + low), the levels' offset taken off, + minimum.
template <DType type>
void FinishTile(const OrderedSums<type>& sums, const SumScratch& s, int block, int blocks,
                const SumTarget& target) {
  using Traits = SumTraits<type>;
  constexpr int kOffset = Traits::kBytes ? kWideOffset : Traits::kOffset;
  for (int c = 0; c < blocks * 32; c += 16) {
    const int b = block + c / 32;
    const I32x16 up = SubI(LoadI32(sums.high + c), Set1I(kOffset * s.high_sum[b])),
                 down = SubI(LoadI32(sums.low + c), Set1I(kOffset * s.low_sum[b]));
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

// One pass over a chunk of rows: the first pass prefetches the rows of `next`.
template <DType type, bool kWhole, int pass>
inline void SumOnePass(const SumChunk& chunk, const SumChunk& next, const SumRange& range,
                       const SumScratch& s, int block, int blocks, OrderedSums<type>& sums) {
  SumTile<type> tile;
  tile.Clear();
  const std::ptrdiff_t offset = LevelsOffset<type>(range, range.first + block);
  const int bytes = blocks * SumTraits<type>::kBlockBytes;
  const std::int32_t *high = s.high + block, *low = s.low + block;
  const auto add = [&](int k, SumTile<type>& to) {
    U8x64 rows[4];
    for (int r = 0; r < 4; ++r)  // beyond the last: times zero
      rows[r] = LoadLevels<kWhole>(chunk.rows[k + r] + offset, bytes);
    if (pass == 0 && k < next.count) {
      for (int r = 0; r < 4; ++r) Prefetch(next.rows[k + r] + offset);
    }
    AddFourRows<type, pass>(rows, high, low, to);
    high += range.padded;
    low += range.padded;
  };
  if constexpr (kInWords<type>) {
    for (int k = 0; k < chunk.count;) {
      SumTile<type> words;
      words.Clear();
      const int end = k + 4 * kRunsInWords < chunk.count ? k + 4 * kRunsInWords : chunk.count;
      for (; k < end; k += 4) add(k, words);
      tile.AddWidened(words);
    }
  } else {
    for (int k = 0; k < chunk.count; k += 4) add(k, tile);
  }
  OrderSums<type, pass>(tile.high, sums.high);
  OrderSums<type, pass>(tile.low, sums.low);
}

// Blocks [block, block + blocks) of the range for a chunk of rows; `next` is prefetched.
template <DType type, bool kWhole>
void SumOneTile(const SumChunk& chunk, const SumChunk& next, const SumRange& range,
                const SumScratch& s, int block, int blocks, const SumTarget& target) {
  OrderedSums<type> sums;
  SumOnePass<type, kWhole, 0>(chunk, next, range, s, block, blocks, sums);
  // Levels of two bits: registers hold the sums of half of them.
  if constexpr (SumTraits<type>::kTwoBits)
    SumOnePass<type, kWhole, 1>(chunk, next, range, s, block, blocks, sums);
  FinishTile<type>(sums, s, block, blocks, target);
}

}  // namespace
}  // namespace thermocline::kernels
