// The coefficients of SumRows: the scales of a row times its h, 16 bits in two signed bytes.
//
// Included by sum_rows.inl.h.
namespace thermocline::kernels {
namespace {

// The layout of a type's rows, in groups of 256 columns (fewer at the row's end).
template <DType type>
struct SumTraits {
  static constexpr bool kBytes = type == DType::kQ8_0;  // a level is a byte, else less
  static constexpr bool kTwoBits = HasTwoBits(type);    // else a nibble
  static constexpr int kBlockBytes = kBytes ? 32 : kTwoBits ? 8 : 16;  // levels of a block
  static constexpr int kLoadBlocks = 64 / kBlockBytes;  // blocks of 32 columns in 64 bytes
  static constexpr int kOffset = LayoutOf(type).offset;
  static constexpr bool kHasMin = LayoutOf(type).min >= 0;
  static constexpr bool kIsK = type == DType::kQ4_K;

  static constexpr int HeaderBytes(int blocks) {
    return kTwoBits ? 2 : kIsK ? 16 : blocks * (kHasMin ? 4 : 2);
  }
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
  const std::ptrdiff_t area = StartOf(kSumChunk + 4, padded);
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
  const std::uint8_t* group = row + block / 8 * RowBytes(type, 256);
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
  const std::uint8_t* first = row + block / 8 * RowBytes(DType::kQ4_K, 256);
  const std::uint8_t* second = count > 8 ? first + RowBytes(DType::kQ4_K, 256) : first;
  alignas(64) float d[16];  // d and dmin lead both blocks
  Store(d, LoadF16Pair(first, second));
  const I32x16 left = SixBitNumbers(first + 4), right = SixBitNumbers(second + 4);
  a = MulF(ToF32(LowHalves(left, right)), TwoHalves(d[0], count > 8 ? d[8] : 0));
  m = MulF(ToF32(HighHalves(left, right)), TwoHalves(-d[1], count > 8 ? -d[9] : 0));
}

// a of two blocks of 256, or of one.
inline F32x16 LoadOneScale(const std::uint8_t* row, int block, int count) {
  const std::uint8_t* first = row + block / 8 * RowBytes(DType::kTQ2_0, 256);
  const std::uint8_t* second = count > 8 ? first + RowBytes(DType::kTQ2_0, 256) : first;
  alignas(64) float d[16];
  Store(d, LoadF16Pair(first, second));
  return TwoHalves(d[0], count > 8 ? d[8] : 0);
}

// The same of `count` blocks, at most 16.
template <DType type>
inline void LoadScales(const std::uint8_t* row, const SumRange& range, int block, int count,
                       F32x16& a, F32x16& m) {
  using Traits = SumTraits<type>;
  if constexpr (Traits::kTwoBits) {
    a = LoadOneScale(row, block, count);
    m = ZeroF();
    return;
  } else if constexpr (Traits::kIsK) {
    return LoadSixBitScales(row, block, count, a, m);
  } else {
    const bool two = count >= 16 && range.row_blocks - block >= 16;  // whole groups
    if (two || (count <= 8 && range.group_blocks(block) == 8)) {
      constexpr std::ptrdiff_t kGroupBytes = RowBytes(type, 256);
      const std::uint8_t* group = row + block / 8 * kGroupBytes;
      const std::uint8_t* second = two ? group + kGroupBytes : group;  // its half is not used
      a = LoadF16Pair(group, second);
      m = Traits::kHasMin ? LoadF16Pair(group + 16, second + 16) : ZeroF();
      return;
    }
  }
  if constexpr (!Traits::kIsK && !Traits::kTwoBits) {
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

// Finds coefficients h * a as floats, the sums of the minimums, and the limits that the
// coefficients are rounded by: their largest, or `limits` of the range's blocks.
template <DType type>
void FindCoefficients(const SumChunk& chunk, const SumRange& range, const float* limits,
                      const SumScratch& s) {
  for (int b = 0; b < range.padded; b += 16) {
    F32x16 largest = ZeroF(), minimum = ZeroF();
    for (int k = 0; k < chunk.count; ++k) {
      F32x16 a, m;
      LoadScales<type>(chunk.rows[k], range, range.first + b, range.count - b, a, m);
      const F32x16 h = Set1(chunk.h[k]), c = MulF(h, a);
      Store(s.coefficients + StartOf(k, range.padded) + b, c);
      largest = MaxF(largest, AbsF(c));
      if constexpr (SumTraits<type>::kHasMin) minimum = Fma(h, m, minimum);
    }
    if (limits != nullptr) {
      alignas(64) float given[16] = {};
      __builtin_memcpy(given, limits + b,
                       sizeof(float) * (range.count - b < 16 ? range.count - b : 16));
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
        const float* c = s.coefficients + StartOf(k + r, range.padded) + b;
        q[r] = k + r < rows ? RoundI(MulF(LoadF32(c), inverse)) : ZeroI();
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

}  // namespace
}  // namespace thermocline::kernels
