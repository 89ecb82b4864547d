// Attention on integers, for caches of type kQ8 (attention.h).
//
// Scores are products of bytes, as in every quantised matrix. The weighted sum of values is one,
// too: in each block of 64 positions a row's probabilities times the values' scales become bytes
// relative to their own maximum. Relative to the row's maximum they would vanish behind a token
// that draws most attention: KL against f16 0.0106 instead of 0.0007 at 1,024 tokens of SmolLM2.
//
// Sums of products are exact; floats are computed element by element or in a fixed order. So
// neither the ISA nor the tile changes a bit, and a row's bits depend on its positions alone.
// Source: SageAttention (Zhang et al. 2024), scales by block; INT-FlashAttention (Chen et al.
// 2024), weights as integers.
//
// Included by attention.inl.h.
namespace thermocline::kernels {
namespace {

constexpr float kWeightMax = 254;  // level of a block's largest weight
constexpr int kBlockVectors = kKvBlock / 16;
constexpr std::ptrdiff_t kKeyGroupBytes = kPanelRows * 2 + 8 * kQuadBytes;  // 32 columns

// A block's softmax by row. UpdateStates reads and writes whole vectors of rows.
struct BlockWeights {
  static constexpr int kRows = RoundUp(kRowsOfTurn, 16);
  alignas(64) std::uint8_t levels[kRows][kKvBlock];
  // The row's maximal score in the block, the sum of exp(score - max), and the maximal weight.
  alignas(64) float max[kRows], total[kRows], weight[kRows];
  // The factors of older sums and of this block's integer sums.
  alignas(64) float older[kRows], scale[kRows];
};

// exp(x) for x <= 0, relative error below 3e-6, exp(0) = 1; 2^-125 below that.
// Source: a minimax polynomial for 2^f on [-1/2, 1/2] that is 1 at 0, by Lawson's iteration.
inline F32x16 WeightExp(F32x16 x) {
  constexpr float kRoundShift = 12582912;  // 1.5 * 2^23: a sum with it has no bits behind the point
  const F32x16 t = MaxF(MulF(x, Set1(1.44269504F)), Set1(-125));
  const F32x16 shifted = AddF(t, Set1(kRoundShift));
  const F32x16 f = SubF(t, SubF(shifted, Set1(kRoundShift)));
  F32x16 p = Fma(Set1(0.009582853F), f, Set1(0.055906426F));
  for (const float c : {0.24024099F, 0.69312418F, 1.0F}) p = Fma(p, f, Set1(c));
  return AddExponent(p, shifted);
}

// v at positions [begin, end) of a block, else `other`. `at`: the position of the first lane.
inline F32x16 SelectPositions(F32x16 v, int at, int begin, int end, F32x16 other) {
  alignas(64) static constexpr float kLanes[16] = {0, 1, 2,  3,  4,  5,  6,  7,
                                                   8, 9, 10, 11, 12, 13, 14, 15};
  const F32x16 lanes = AddF(LoadF32(kLanes), Set1(static_cast<float>(at)));
  const F32x16 inside = SelectAtLeast(lanes, Set1(static_cast<float>(end)), other, v);
  return SelectAtLeast(lanes, Set1(static_cast<float>(begin)), inside, other);
}
inline void SelectPositions(F32x16 (&v)[kBlockVectors], int begin, int end, F32x16 other) {
  if (begin == 0 && end == kKvBlock) return;
  for (int i = 0; i < kBlockVectors; ++i) v[i] = SelectPositions(v[i], 16 * i, begin, end, other);
}

// A row's scores of a block, of which it sees positions before `end`.
struct ScoredRow {
  const float* scores;
  int end;
};

// Turns scores at positions from `begin` on into the levels of rows from `first` on. `scales`: of
// the values.
inline void WeighRows(const ScoredRow (&rows)[kSoftmaxRows], int begin,
                      const F32x16 (&scales)[kBlockVectors], int first, BlockWeights& out) {
  F32x16 x[kSoftmaxRows][kBlockVectors], of[kSoftmaxRows];
  for (int r = 0; r < kSoftmaxRows; ++r) {
    for (int i = 0; i < kBlockVectors; ++i) x[r][i] = LoadF32(rows[r].scores + 16 * i);
    SelectPositions(x[r], begin, rows[r].end, Set1(-3e38F));
    of[r] = MaxF(MaxF(x[r][0], x[r][1]), MaxF(x[r][2], x[r][3]));
  }
  const F32x16 max = MaxOfRows(of);
  for (int r = 0; r < kSoftmaxRows; ++r) {
    const F32x16 row_max = RowOf(max, r);
    for (F32x16& v : x[r]) v = WeightExp(SubF(v, row_max));
    SelectPositions(x[r], begin, rows[r].end, ZeroF());
    of[r] = AddF(AddF(x[r][0], x[r][1]), AddF(x[r][2], x[r][3]));
  }
  StoreRows(out.max + first, max);
  StoreRows(out.total + first, SumsOfRows(of));
  for (int r = 0; r < kSoftmaxRows; ++r) {
    for (int i = 0; i < kBlockVectors; ++i) x[r][i] = MulF(x[r][i], scales[i]);
    // Scales of positions without a token may be NaN.
    SelectPositions(x[r], begin, rows[r].end, ZeroF());
    of[r] = MaxF(MaxF(x[r][0], x[r][1]), MaxF(x[r][2], x[r][3]));
  }
  const F32x16 weight = MaxOfRows(of);
  const F32x16 level = SelectAtLeast(ZeroF(), weight, ZeroF(), DivF(Set1(kWeightMax), weight));
  for (int r = 0; r < kSoftmaxRows; ++r) {
    const F32x16 row_level = RowOf(level, r);
    for (F32x16& v : x[r]) v = MulF(v, row_level);
    StoreLevels(out.levels[first + r], x[r]);
  }
  StoreRows(out.weight + first, weight);
}

// Adds the block's softmax to the rows' states, sixteen rows at a time.
inline void UpdateStates(const AttentionState& state, int rows, BlockWeights& block) {
  for (int r = 0; r < rows; r += 16) {
    const int n = rows - r < 16 ? rows - r : 16;
    const F32x16 old_max = LoadPartial(state.max + r, n), max = LoadF32(block.max + r);
    const F32x16 new_max = MaxF(old_max, max);
    const F32x16 older = WeightExp(SubF(old_max, new_max)), factor = WeightExp(SubF(max, new_max));
    const F32x16 total = MulF(factor, LoadF32(block.total + r));
    StorePartial(state.total + r, n, Fma(LoadPartial(state.total + r, n), older, total));
    StorePartial(state.max + r, n, new_max);
    Store(block.older + r, older);
    const F32x16 weight = MulF(LoadF32(block.weight + r), Set1(1 / kWeightMax));
    Store(block.scale + r, MulF(factor, weight));
  }
}

// Scores of P panels of keys and T rows, by the formula of gemm_slab.inl.h.
template <int P, int T>
void ScoreTile(const std::uint8_t* keys, const TokenRows& q, float* scores) {
  const std::ptrdiff_t panel_bytes = q.blocks * kKeyGroupBytes;
  F32x16 acc[P][T];
  for (auto& panel : acc) {
    for (F32x16& sum : panel) sum = ZeroF();
  }
  for (std::ptrdiff_t g = 0; g < q.blocks; ++g, keys += kKeyGroupBytes) {
    I32x16 dot[P][T];
    for (int t = 0; t < T; ++t) {
      const I32x16 begin = Set1I(-kWideOffset * q.sum[t * q.blocks + g]);
      for (int p = 0; p < P; ++p) dot[p][t] = begin;
    }
    const std::int8_t* x = q.q + g * kActivationBlock;
    Unroll<0, 8>([&]<int quad>() __attribute__((always_inline)) {
      U8x64 levels[P];
      for (int p = 0; p < P; ++p)
        levels[p] = LoadU8(keys + p * panel_bytes + 2 * kPanelRows + quad * kQuadBytes);
      for (int t = 0; t < T; ++t) {
        for (int p = 0; p < P; ++p) {
          dot[p][t] = Dot4(dot[p][t], levels[p], x + t * q.cols + 4 * quad);
          KeepInRegisters(dot[p][t]);
        }
      }
    });
    for (int p = 0; p < P; ++p) {
      const F32x16 scale = LoadF16(keys + p * panel_bytes);
      for (int t = 0; t < T; ++t)
        acc[p][t] = Fma(MulF(scale, Set1(q.scale[t * q.blocks + g])), ToF32(dot[p][t]), acc[p][t]);
    }
  }
  for (int t = 0; t < T; ++t) {
    for (int p = 0; p < P; ++p) Store(scores + t * kKvBlock + p * kPanelRows, acc[p][t]);
  }
}

// T rows' sums of P panels of values, added to the states. With loops that the compiler unrolls the
// sums lay in memory, which took three times as long (unroll.h).
template <int P, int T>
void ValueTile(const std::uint8_t* values, const BlockWeights& block, int row, int head_dim,
               float* out) {
  constexpr std::ptrdiff_t kPanel = kPanelRows * kKvBlock;
  I32x16 sum[P * T];
  Unroll<0, P * T>([&]<int i>() __attribute__((always_inline)) { sum[i] = ZeroI(); });
  for (int quad = 0; quad < kKvBlock / 4; ++quad) {
    ValueQuad v[P];
    Unroll<0, P>([&]<int p>() __attribute__((always_inline)) {
      v[p] = LoadValues(values + p * kPanel + quad * kQuadBytes);
    });
    Unroll<0, T>([&]<int t>() __attribute__((always_inline)) {
      const WeightQuad w = BroadcastWeights(block.levels[row + t] + 4 * quad);
      Unroll<0, P>([&]<int p>() __attribute__((always_inline)) {
        sum[t * P + p] = DotWeights(sum[t * P + p], w, v[p]);
        KeepInRegisters(sum[t * P + p]);
      });
    });
  }
  Unroll<0, T>([&]<int t>() __attribute__((always_inline)) {
    const F32x16 older = Set1(block.older[row + t]), scale = Set1(block.scale[row + t]);
    float* to = out + StartOf(t, head_dim);
    Unroll<0, P>([&]<int p>() __attribute__((always_inline)) {
      const F32x16 part = MulF(ToF32(sum[t * P + p]), scale);
      Store(to + p * kPanelRows, Fma(LoadF32(to + p * kPanelRows), older, part));
    });
  });
}

// Calls body.operator()<T>(first) for tiles of at most kMost of n rows.
template <int kMost, typename Body>
inline void ForRowTiles(int n, const Body& body) {
  int at = 0;
  for (; n - at >= kMost; at += kMost) body.template operator()<kMost>(at);
  if constexpr (kMost > 1) {
    if (at < n) {
      ForRowTiles<kMost - 1>(n - at, [&]<int T>(int r) { body.template operator()<T>(at + r); });
    }
  }
}

template <int P>
void AddValuePanels(const std::uint8_t* values, const BlockWeights& block, int rows, int head_dim,
                    int dim, float* out) {
  ForRowTiles<kValueRows>(rows, [&]<int T>(int r) {
    ValueTile<P, T>(values + StartOf(dim, kKvBlock), block, r, head_dim,
                    out + StartOf(r, head_dim) + dim);
  });
}

// The two products of a block in vectors. `amx.cc` has another pair, with the same bits.
struct VectorProducts {
  static constexpr int kRows = kRowsOfTurn;

  // Scores of a block's positions [rows.begin, rows.end).
  static void Scores(const AttentionParams& p, const std::uint8_t* block, const BlockRows& rows);
  // Adds the block's values, weighted, for rows whose levels are made, to out [rows, head_dim].
  static void AddValues(const std::uint8_t* values, const BlockWeights& block, int rows,
                        int head_dim, float* out);
};

inline void VectorProducts::AddValues(const std::uint8_t* values, const BlockWeights& block,
                                      int rows, int head_dim, float* out) {
  const std::uint8_t* levels = values + 2 * kKvBlock;
  constexpr int kDims = kValuePanels * kPanelRows;
  int dim = 0;
  for (; dim + kDims <= head_dim; dim += kDims)
    AddValuePanels<kValuePanels>(levels, block, rows, head_dim, dim, out);
  for (; dim < head_dim; dim += kPanelRows)
    AddValuePanels<1>(levels, block, rows, head_dim, dim, out);
}

inline void VectorProducts::Scores(const AttentionParams& p, const std::uint8_t* block,
                                   const BlockRows& rows) {
  if constexpr (kScorePanels > 0) {
    if (rows.begin == 0 && rows.end > kKvBlock - kPanelRows) {
      return ForRowTiles<kScoreRows>(rows.count, [&]<int T>(int r) {
        const TokenRows x = TokenRowsAt(p.q, rows.first + r, 0);
        for (int panel = 0; panel < kBlockVectors; panel += kScorePanels)
          ScoreTile<kScorePanels, T>(
              block + p.keys_offset + panel * PanelBytes(DType::kQ8_0, p.head_dim), x,
              p.scores + StartOf(rows.first + r, kKvBlock) + panel * kPanelRows);
      });
    }
  }
  kernels::Scores(p, block, rows);
}

// Rows whose positions in the block begin at the same place. As AttendRows.
template <typename Products>
void AttendByteRows(Products& products, const AttentionParams& p, const std::uint8_t* values,
                    const BlockRows& rows, int block) {
  BlockWeights weights;
  F32x16 scales[kBlockVectors];
  for (int i = 0; i < kBlockVectors; ++i) scales[i] = LoadF16(values + 2 * 16 * i);
  for (int r = rows.first; p.score_cap > 0 && r < rows.first + rows.count; ++r)
    SoftCap(p.scores + StartOf(r, kKvBlock) + rows.begin, rows.end - rows.begin, p.score_cap);
  for (int r = 0; r < rows.count; r += kSoftmaxRows) {
    ScoredRow of[kSoftmaxRows];
    for (int i = 0; i < kSoftmaxRows; ++i) {  // behind the last row: that one again
      const int row = rows.first + (r + i < rows.count ? r + i : rows.count - 1);
      const int last = p.spans[row / p.group].end - block * kKvBlock;
      of[i] = {p.scores + StartOf(row, kKvBlock), last < rows.end ? last : rows.end};
    }
    WeighRows(of, rows.begin, scales, r, weights);
  }
  const AttentionState state = p.state.Row(rows.first, p.head_dim);
  UpdateStates(state, rows.count, weights);
  products.AddValues(values, weights, rows.count, p.head_dim, state.out);
}

// The product of each row's query and the vector that keys were stored without.
inline void AddOrigin(const AttentionParams& p) {
  for (int r = 0; r < p.tokens * p.group; ++r) {
    const float* q = p.q.x + StartOf(r, p.head_dim);
    F32x16 sum = ZeroF();
    for (int i = 0; i < p.head_dim; i += 16)
      sum = Fma(LoadF32(q + i), LoadF32(p.key_origin + i), sum);
    p.state.max[r] += SumLanes(sum);
  }
}

}  // namespace
}  // namespace thermocline::kernels
