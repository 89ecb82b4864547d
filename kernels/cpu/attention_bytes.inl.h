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

// A block's softmax by row. UpdateStates reads and writes whole vectors of rows.
struct BlockWeights {
  static constexpr int kRows = RoundUp(kAttentionRows, 16);
  alignas(64) std::uint8_t levels[kAttentionRows][kKvBlock];
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
inline float MaxOf(const F32x16 (&v)[kBlockVectors]) {
  return MaxLanes(MaxF(MaxF(v[0], v[1]), MaxF(v[2], v[3])));
}

// Turns a row's scores at positions [begin, end) of a block into levels. `scales`: of the values.
inline void WeighRow(const float* scores, int begin, int end, const F32x16 (&scales)[kBlockVectors],
                     int row, BlockWeights& out) {
  F32x16 x[kBlockVectors];
  for (int i = 0; i < kBlockVectors; ++i) x[i] = LoadF32(scores + 16 * i);
  SelectPositions(x, begin, end, Set1(-3e38F));
  const float max = MaxOf(x);
  for (F32x16& v : x) v = WeightExp(SubF(v, Set1(max)));
  SelectPositions(x, begin, end, ZeroF());
  out.max[row] = max;
  out.total[row] = SumLanes(AddF(AddF(x[0], x[1]), AddF(x[2], x[3])));
  for (int i = 0; i < kBlockVectors; ++i) x[i] = MulF(x[i], scales[i]);
  SelectPositions(x, begin, end, ZeroF());  // scales of positions without a token may be NaN
  const float weight = MaxOf(x);
  const F32x16 level = Set1(weight > 0 ? kWeightMax / weight : 0);
  for (int i = 0; i < kBlockVectors; ++i) StoreU8(out.levels[row] + 16 * i, MulF(x[i], level));
  out.weight[row] = weight;
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
  constexpr std::ptrdiff_t kGroupBytes = kPanelRows * 2 + 8 * kQuadBytes;
  const std::ptrdiff_t panel_bytes = q.blocks * kGroupBytes;
  F32x16 acc[P][T];
  for (auto& panel : acc) {
    for (F32x16& sum : panel) sum = ZeroF();
  }
  for (std::ptrdiff_t g = 0; g < q.blocks; ++g, keys += kGroupBytes) {
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

// T rows' sums of P panels of values, added to the states.
template <int P, int T>
void ValueTile(const std::uint8_t* values, const BlockWeights& block, int row, int head_dim,
               float* out) {
  constexpr std::ptrdiff_t kPanel = kPanelRows * kKvBlock;
  I32x16 sum[P][T];
  for (auto& panel : sum) {
    for (I32x16& s : panel) s = ZeroI();
  }
  for (int quad = 0; quad < kKvBlock / 4; ++quad) {
    ValueQuad v[P];
    for (int p = 0; p < P; ++p) v[p] = LoadValues(values + p * kPanel + quad * kQuadBytes);
    for (int t = 0; t < T; ++t) {
      const WeightQuad w = BroadcastWeights(block.levels[row + t] + 4 * quad);
      for (int p = 0; p < P; ++p) {
        sum[p][t] = DotWeights(sum[p][t], w, v[p]);
        KeepInRegisters(sum[p][t]);
      }
    }
  }
  for (int t = 0; t < T; ++t) {
    const F32x16 older = Set1(block.older[row + t]), scale = Set1(block.scale[row + t]);
    float* to = out + StartOf(t, head_dim);
    for (int p = 0; p < P; ++p) {
      const F32x16 part = MulF(ToF32(sum[p][t]), scale);
      Store(to + p * kPanelRows, Fma(LoadF32(to + p * kPanelRows), older, part));
    }
  }
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

// The block's values, weighted, for rows whose levels are made.
inline void AddByteValues(const std::uint8_t* values, const BlockWeights& block, int rows,
                          int head_dim, float* out) {
  const std::uint8_t* levels = values + 2 * kKvBlock;
  constexpr int kDims = kValuePanels * kPanelRows;
  int dim = 0;
  for (; dim + kDims <= head_dim; dim += kDims)
    AddValuePanels<kValuePanels>(levels, block, rows, head_dim, dim, out);
  for (; dim < head_dim; dim += kPanelRows)
    AddValuePanels<1>(levels, block, rows, head_dim, dim, out);
}

// Scores of a block's positions [rows.begin, rows.end).
inline void ByteScores(const AttentionParams& p, const std::uint8_t* block, const BlockRows& rows) {
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
  Scores(p, block, rows);
}

// Rows whose positions in the block begin at the same place. As AttendRows.
void AttendByteRows(const AttentionParams& p, const std::uint8_t* values, const BlockRows& rows,
                    int block) {
  BlockWeights weights;
  F32x16 scales[kBlockVectors];
  for (int i = 0; i < kBlockVectors; ++i) scales[i] = LoadF16(values + 2 * 16 * i);
  for (int r = 0; r < rows.count; ++r) {
    const int row = rows.first + r, last = p.spans[row / p.group].end - block * kKvBlock;
    const int end = last < rows.end ? last : rows.end;
    float* scores = p.scores + StartOf(row, kKvBlock);
    if (p.score_cap > 0) SoftCap(scores + rows.begin, end - rows.begin, p.score_cap);
    WeighRow(scores, rows.begin, end, scales, r, weights);
  }
  const AttentionState state = p.state.Row(rows.first, p.head_dim);
  UpdateStates(state, rows.count, weights);
  AddByteValues(values, weights, rows.count, p.head_dim, state.out);
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
