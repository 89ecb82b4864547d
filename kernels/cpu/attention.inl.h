// attention.h on sixteen lanes: keys and values are panels, so both products are gemm's.
//
// Online softmax over blocks of 64 positions. Bytes moved per token: each key and value of the
// positions once per group of kGroupTile heads, from memory once.
#include "kernels/attention.h"

namespace thermocline::kernels {
namespace {

constexpr int kGroupTile = 4;  // heads whose scores are computed together

// Scores of positions [begin, end) of one block (relative to it) for `heads` heads from `head` on:
// the keys are a matrix of 64 rows.
inline void Scores(const AttentionParams& p, const std::uint8_t* keys, int head, int heads,
                   int begin, int end) {
  Activations q = p.q;
  const std::ptrdiff_t at = static_cast<std::ptrdiff_t>(head) * p.head_dim;
  const std::ptrdiff_t block = at / kActivationBlock;
  q.x += at;
  q.q += at;
  q.scale += block;
  q.scaled_sum += block;
  q.sum += block;
  q.half_sum += block;
  q.pair_sum += 2 * block;
  q.cols = p.head_dim;
  Gemm({.weights = {KeyType(p.type), kKvBlock, p.head_dim, keys},
        .activations = q,
        .tokens = heads,
        .out = p.scores + head * kKvBlock,
        .out_stride = kKvBlock,
        .panel_begin = begin / kPanelRows,
        .panel_end = (end + kPanelRows - 1) / kPanelRows,
        .prefetch_bytes = 0});  // behind the keys lie another head's
}

float MaxOf(const float* x, int n) {
  float max = x[0];
  for (int i = 1; i < n; ++i) max = x[i] > max ? x[i] : max;
  return max;
}

// Sixteen dimensions' sums over positions [begin, end), weighted by the scores, which are
// probabilities by now. Q8_0 values: `weighted` is scratch for probability times scale.
template <int G>
void WeightedValues(const AttentionParams& p, const std::uint8_t* values, int head, int dim,
                    int begin, int end, F32x16 (&acc)[G]) {
  const float* weights[G];
  const std::ptrdiff_t row = static_cast<std::ptrdiff_t>(dim / kPanelRows) * kKvBlock + begin;
  if (p.type != KvType::kQ8_0) {
    for (int g = 0; g < G; ++g) weights[g] = p.scores + (head + g) * kKvBlock + begin;
    return p.type == KvType::kF32 ? MultiplyColumns<G, Column::kF32>(values + row * kPanelRows * 4,
                                                                     end - begin, weights, acc)
                                  : MultiplyColumns<G, Column::kF16>(values + row * kPanelRows * 2,
                                                                     end - begin, weights, acc);
  }
  alignas(64) float weighted[G][kKvBlock];
  const std::uint8_t* scales = values + 2 * (dim / kActivationBlock * kKvBlock);
  for (int g = 0; g < G; ++g) {
    for (int s = begin / kPanelRows * kPanelRows; s < end; s += kPanelRows) {
      const F32x16 probability = LoadF32(p.scores + (head + g) * kKvBlock + s);
      Store(weighted[g] + s, MulF(probability, LoadF16(scales + 2 * s)));
    }
    weights[g] = weighted[g] + begin;
  }
  const std::uint8_t* levels = values + 2 * kKvBlock * (p.head_dim / kActivationBlock);
  MultiplyColumns<G, Column::kI8>(levels + row * kPanelRows, end - begin, weights, acc);
}

// out = out * correction[g] + the block's weighted values.
template <int G>
void AddValues(const AttentionParams& p, const std::uint8_t* values, int head, int begin, int end,
               const float* correction) {
  for (int dim = 0; dim < p.head_dim; dim += kPanelRows) {
    F32x16 acc[G];
    WeightedValues<G>(p, values, head, dim, begin, end, acc);
    const int n = p.head_dim - dim < kPanelRows ? p.head_dim - dim : kPanelRows;
    for (int g = 0; g < G; ++g) {
      float* out = p.state.out + static_cast<std::ptrdiff_t>(head + g) * p.head_dim + dim;
      const F32x16 old = n == kPanelRows ? LoadF32(out) : LoadPartial(out, n);
      const F32x16 sum = Fma(old, Set1(correction[g]), acc[g]);
      n == kPanelRows ? Store(out, sum) : StorePartial(out, n, sum);
    }
  }
}

// Scores to probabilities relative to the running maximum; returns what older sums are times.
float UpdateSoftmax(const AttentionParams& p, int head, int begin, int end) {
  float* scores = p.scores + head * kKvBlock;
  float &max = p.state.max[head], &total = p.state.total[head];
  const float block_max = MaxOf(scores + begin, end - begin);
  const float new_max = block_max > max ? block_max : max;
  float correction[1] = {max};
  SoftmaxExp(correction, 1, new_max);
  total = total * correction[0] + SoftmaxExp(scores + begin, end - begin, new_max);
  max = new_max;
  return correction[0];
}

template <int G>
void AttendBlock(const AttentionParams& p, int head, const std::uint8_t* block, int begin,
                 int end) {
  Scores(p, block + p.keys_offset, head, G, begin, end);
  float correction[G];
  for (int g = 0; g < G; ++g) correction[g] = UpdateSoftmax(p, head + g, begin, end);
  AddValues<G>(p, block + p.values_offset, head, begin, end, correction);
}

void Attention(const AttentionParams& p) {
  for (int g = 0; g < p.group; ++g) {
    p.state.max[g] = -3e38F;  // below every score, and exp of the difference is 0
    p.state.total[g] = 0;
  }
  for (int i = 0; i < p.group * p.head_dim; ++i) p.state.out[i] = 0;
  for (int at = p.begin; at < p.end;) {
    const int block = at / kKvBlock, begin = at - block * kKvBlock;
    const int end = p.end - block * kKvBlock < kKvBlock ? p.end - block * kKvBlock : kKvBlock;
    int head = 0;
    for (; head + kGroupTile <= p.group; head += kGroupTile)
      AttendBlock<kGroupTile>(p, head, p.blocks[block], begin, end);
    for (; head < p.group; ++head) AttendBlock<1>(p, head, p.blocks[block], begin, end);
    at = (block + 1) * kKvBlock;
  }
}

}  // namespace
}  // namespace thermocline::kernels
