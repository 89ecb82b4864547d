// attention.h on sixteen lanes: K and V are panels, so both products are gemm's.
//
// Online softmax over blocks of 64 positions. Bytes moved: the K and V of the positions once for
// the rows of a turn (tokens times heads of the group).
//
// Measured on a Zen 5, two cores, SmolLM2 (head of 64, groups of 3), prompt of 4,000 tokens/s:
//                                                             AVX2   AVX-512
//   a token's group at a time                                  556       736
//   24 rows, tiles of 6 and 8, one chain in registers          715     1,065
//   a block's maximum in vectors, no exp where it stays,
//   four chains of 6 rows where there are 32 registers         820     1,240
//   tiles of 3 for a single token's heads (AVX2)              decoding 12% slower
//
// One token, 32,768 positions, 32 heads of 128 in groups of 4, f16, share of the read bandwidth of
// the same run (46 to 72 GB/s; two Zen 5 cores):                            AVX2   AVX-512
//   heads one by one                                                         31%       36%
//   a group's heads share a column's load and conversion, two chains at a
//   time in registers where four do not fit                                  39%       70%
//   the values asked for before their keys are done, a panel at once         61%       73%
//   a line for each line, into the second-level cache                        64%       86%
//   into the first-level cache                                               69%       87%
//
// 24 rows, a chunk of 256 positions in the cache, heads of 128, one Zen 4 core at 3.67 GHz, cycles
// a score (of which each has 128 multiply-adds for its key and 128 for its value):  AVX2   AVX-512
//   f16                                                                            22.6     23.7
//   f16, chains that no variable chooses from                                      22.5     21.9
//   q8_0, values as floats                                                         24.6     18.4
//   q8_0, values as bytes (attention_bytes.inl.h)                                  17.8      7.3
//   the same, an exponential of degree 4                                           17.3      7.0
//
// The same with 48 rows on one core of an Intel Xeon (family 6), in cycles of its 2.6 GHz clock,
// beside another process; medians of three turns:                    AVX2   AVX-512    AMX
//   f16                                                              16.3      13.4
//   f16, chains in registers from first to last (unroll.h)           16.1      12.3
//   q8_0                                                             14.6       4.2
//   q8_0, sums in registers, softmax of four rows at a time          13.9       3.9
//   q8_0, both products on tiles (attention_amx.inl.h)                                    3.0
#include "kernels/attention.h"

namespace thermocline::kernels {
namespace {

// The most rows whose scores and values a block's turn computes.
constexpr int kRowsOfTurn = 24;

// Rows [first, first + count) that see positions of a block, and the range of those positions
// relative to the block.
struct BlockRows {
  int first, count;
  int begin, end;
};

// Scores of the block's positions for all rows: the keys are a matrix of 64 rows.
inline void Scores(const AttentionParams& p, const std::uint8_t* block, const BlockRows& rows) {
  Activations q = p.q;
  const std::ptrdiff_t at = StartOf(rows.first, p.head_dim);
  const std::ptrdiff_t scale = at / kActivationBlock;
  q.x += at;
  q.q += at;
  q.scale += scale;
  q.scaled_sum += scale;
  q.sum += scale;
  q.half_sum += scale;
  q.pair_sum += 2 * scale;
  q.cols = p.head_dim;
  // One token waits for memory: the values, which are as large, are prefetched meanwhile.
  const bool asks = p.tokens == 1 && p.values_offset > p.keys_offset;
  Gemm({.weights = {KeyType(p.type), kKvBlock, p.head_dim, block + p.keys_offset},
        .activations = q,
        .tokens = rows.count,
        .out = p.scores + rows.first * kKvBlock,
        .out_stride = kKvBlock,
        .panel_begin = rows.begin / kPanelRows,
        .panel_end = (rows.end + kPanelRows - 1) / kPanelRows,
        .prefetch_bytes = asks ? static_cast<int>(p.values_offset - p.keys_offset) : 0});
}

float MaxOf(const float* x, int n) {
  float max = x[0];
  int i = 0;
  if (n >= 16) {
    F32x16 lanes = LoadF32(x);
    for (i = 16; i + 16 <= n; i += 16) lanes = MaxF(lanes, LoadF32(x + i));
    max = MaxLanes(lanes);
  }
  for (; i < n; ++i) max = x[i] > max ? x[i] : max;
  return max;
}

// Sixteen dimensions' sums of G rows over positions [begin, end), weighted by the scores, which are
// probabilities by now. Quantised values: `weighted` is scratch for probability times scale. As
// many bytes of `next` are prefetched meanwhile, unless it is null.
template <int G>
void WeightedValues(const AttentionParams& p, const std::uint8_t* values, const std::uint8_t* next,
                    int first, int dim, int begin, int end, F32x16 (&acc)[G]) {
  const float* weights[G];
  const std::ptrdiff_t row = StartOf(dim / kPanelRows, kKvBlock) + begin;
  const auto multiply = [&]<Column kind>(const std::uint8_t* levels) {
    const std::ptrdiff_t at = row * ColumnBytes(kind);
    MultiplyColumns<G, kind>(levels + at, end - begin, weights,
                             next == nullptr || first > 0 ? nullptr : next + at, acc);
  };
  if (!IsQuantized(p.type)) {
    for (int g = 0; g < G; ++g) weights[g] = p.scores + (first + g) * kKvBlock + begin;
    return p.type == KvType::kF32 ? multiply.template operator()<Column::kF32>(values)
                                  : multiply.template operator()<Column::kF16>(values);
  }
  alignas(64) float weighted[G][kKvBlock];
  const std::uint8_t* scales = values + 2 * (dim / kActivationBlock * kKvBlock);
  for (int g = 0; g < G; ++g) {
    for (int s = begin / kPanelRows * kPanelRows; s < end; s += kPanelRows) {
      const F32x16 probability = LoadF32(p.scores + (first + g) * kKvBlock + s);
      Store(weighted[g] + s, MulF(probability, LoadF16(scales + 2 * s)));
    }
    weights[g] = weighted[g] + begin;
  }
  const std::uint8_t* levels = values + 2 * kKvBlock * (p.head_dim / kActivationBlock);
  p.type == KvType::kQ4_0 ? multiply.template operator()<Column::kNibbles>(levels)
                          : multiply.template operator()<Column::kI8>(levels);
}

// out = out * correction[g] + the block's weighted values, of G rows.
template <int G>
void AddValues(const AttentionParams& p, const std::uint8_t* values, const std::uint8_t* next,
               int first, int begin, int end, const float* correction) {
  for (int dim = 0; dim < p.head_dim; dim += kPanelRows) {
    F32x16 acc[G];
    WeightedValues<G>(p, values, next, first, dim, begin, end, acc);
    const int n = p.head_dim - dim < kPanelRows ? p.head_dim - dim : kPanelRows;
    Unroll<0, G>([&]<int g>() __attribute__((always_inline)) {
      float* out = p.state.out + StartOf(first + g, p.head_dim) + dim;
      const F32x16 old = n == kPanelRows ? LoadF32(out) : LoadPartial(out, n);
      const F32x16 sum = Fma(old, Set1(correction[g]), acc[g]);
      n == kPanelRows ? Store(out, sum) : StorePartial(out, n, sum);
    });
  }
}

// Turns a row's scores into probabilities relative to the running maximum. Returns the factor by
// which older sums are multiplied.
float UpdateSoftmax(const AttentionParams& p, int row, int begin, int end) {
  float* scores = p.scores + row * kKvBlock;
  float &max = p.state.max[row], &total = p.state.total[row];
  if (p.score_cap > 0) SoftCap(scores + begin, end - begin, p.score_cap);
  const float block_max = MaxOf(scores + begin, end - begin);
  const float new_max = block_max > max ? block_max : max;
  float correction[1] = {max};
  if (new_max > max) {
    SoftmaxExp(correction, 1, new_max);
  } else {
    correction[0] = 1;
  }
  total = total * correction[0] + SoftmaxExp(scores + begin, end - begin, new_max);
  max = new_max;
  return correction[0];
}

// Softmax and values of rows whose positions in the block begin at the same place. After the end of
// a row's positions its probabilities are 0, which changes no sum.
void AttendRows(const AttentionParams& p, const std::uint8_t* values, const BlockRows& rows,
                int block) {
  float correction[kRowsOfTurn];
  for (int r = 0; r < rows.count; ++r) {
    const int row = rows.first + r, last = p.spans[row / p.group].end - block * kKvBlock;
    const int end = last < rows.end ? last : rows.end;
    correction[r] = UpdateSoftmax(p, row, rows.begin, end);
    for (int s = end; s < rows.end; ++s) p.scores[row * kKvBlock + s] = 0;
  }
  // One token waits for memory: the next block's keys are prefetched.
  const bool more = p.tokens == 1 && (block + 1) * kKvBlock < p.spans[0].end;
  const std::uint8_t* next = more ? p.blocks[block + 1] + p.keys_offset : nullptr;
  ForFloatTiles(rows.count, [&]<int G>(int r) {
    AddValues<G>(p, values, next, rows.first + r, rows.begin, rows.end, correction + r);
  });
}

}  // namespace
}  // namespace thermocline::kernels

#include "kernels/cpu/attention_bytes.inl.h"

namespace thermocline::kernels {
namespace {

inline int BeginInBlock(const PositionSpan& span, int block) {
  return span.begin > block * kKvBlock ? span.begin - block * kKvBlock : 0;
}
inline int EndInBlock(const PositionSpan& span, int block) {
  const int end = span.end - block * kKvBlock;
  return end < kKvBlock ? end : kKvBlock;
}

inline void PrefetchAll(const std::uint8_t* bytes, std::size_t count) {
  for (std::size_t at = 0; at < count; at += 64) Prefetch(bytes + at);
}

inline void SubtractDistances(const AttentionParams& p, const BlockRows& rows, int block) {
  for (int row = rows.first; row < rows.first + rows.count; ++row) {
    const float slope = p.slopes[row % p.group];
    const int at = p.positions[row / p.group] - block * kKvBlock;
    float* scores = p.scores + StartOf(row, kKvBlock);
    for (int s = rows.begin; s < rows.end; ++s)
      scores[s] -= slope * static_cast<float>(at < s ? s - at : at - s);
  }
}

// Rows that begin together.
template <typename Products>
void AttendRowsOfBlock(Products& products, const AttentionParams& p, const BlockRows& rows,
                       int block) {
  const std::uint8_t* values = p.blocks[block] + p.values_offset;
  if (p.type == KvType::kQ8) {
    // One token waits for memory: values, and the next block's keys, are prefetched meanwhile.
    if (p.tokens == 1) PrefetchAll(values, ValueBlockBytes(p.type, p.head_dim));
    products.Scores(p, p.blocks[block], rows);
    if (p.slopes != nullptr) SubtractDistances(p, rows, block);
    if (p.tokens == 1 && (block + 1) * kKvBlock < p.spans[0].end)
      PrefetchAll(p.blocks[block + 1] + p.keys_offset, KeyBlockBytes(p.type, p.head_dim));
    return AttendByteRows(products, p, values, rows, block);
  }
  Scores(p, p.blocks[block], rows);
  if (p.slopes != nullptr) SubtractDistances(p, rows, block);
  AttendRows(p, values, rows, block);
}

// The tokens from `first` on, to `last`, that see the block. Their rows take turns, so that the
// first-level cache holds all that a turn reads. Rows of a token may be in two turns.
template <typename Products>
void AttendBlock(Products& products, const AttentionParams& p, int block, int first, int last) {
  for (int token = first; token < last;) {
    const int begin = BeginInBlock(p.spans[token], block);
    int next = token + 1;
    while (next < last && BeginInBlock(p.spans[next], block) == begin) ++next;
    for (int row = token * p.group; row < next * p.group; row += Products::kRows) {
      const int left = next * p.group - row,
                count = left < Products::kRows ? left : Products::kRows;
      const int end = EndInBlock(p.spans[(row + count - 1) / p.group], block);
      AttendRowsOfBlock(products, p, {row, count, begin, end}, block);
    }
    token = next;
  }
}

template <typename Products>
void AttendChunk(const AttentionParams& p) {
  Products products;
  const int rows = p.tokens * p.group;
  for (int r = 0; r < rows; ++r) {
    p.state.max[r] = -3e38F;  // below every score, and exp of the difference is 0
    p.state.total[r] = 0;
  }
  for (int i = 0; i < rows * p.head_dim; ++i) p.state.out[i] = 0;
  const int last_block = (p.spans[p.tokens - 1].end - 1) / kKvBlock;
  int first = 0, last = 0;  // the tokens that see the block
  for (int block = p.spans[0].begin / kKvBlock; block <= last_block; ++block) {
    while (first < p.tokens && p.spans[first].end <= block * kKvBlock) ++first;
    while (last < p.tokens && p.spans[last].begin < (block + 1) * kKvBlock) ++last;
    if (first < last) AttendBlock(products, p, block, first, last);
  }
  if (p.key_origin != nullptr) AddOrigin(p);
}

void Attention(const AttentionParams& p) { AttendChunk<VectorProducts>(p); }

}  // namespace
}  // namespace thermocline::kernels
