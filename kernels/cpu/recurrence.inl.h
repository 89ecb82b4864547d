// recurrence.h on sixteen lanes: a lane is a column of the state.
//
// A token reads and writes its head's columns once: 128 rows of 32 columns take 16 KiB and stay in
// the first cache while all tokens of a step pass, so that memory is read once a step.
#include "kernels/recurrence.h"

namespace thermocline::kernels {
namespace {

void ShortConv(const ShortConvParams& p) {
  int c = 0;
  for (; c + 16 <= p.n; c += 16) {
    F32x16 sum = p.bias != nullptr ? LoadF32(p.bias + c) : ZeroF();
    for (int t = 0; t < p.taps; ++t)
      sum = Fma(LoadF32(p.weight + t * p.n + c), LoadF32(p.rows[t] + c), sum);
    Store(p.out + c, sum);
  }
  for (; c < p.n; ++c) {
    float sum = p.bias != nullptr ? p.bias[c] : 0.0F;
    for (int t = 0; t < p.taps; ++t) sum = __builtin_fmaf(p.weight[t * p.n + c], p.rows[t][c], sum);
    p.out[c] = sum;
  }
}

// The sums over rows of kBlocks blocks of columns, in two chains.
template <int kBlocks>
struct RowChains {
  F32x16 chain[2][kBlocks];

  RowChains() {
    for (auto& blocks : chain)
      for (F32x16& sum : blocks) sum = ZeroF();
  }
  F32x16 Sum(int block) const { return AddF(chain[0][block], chain[1][block]); }
};

// S^T k of kBlocks blocks. `columns`: the first of them.
template <int kBlocks>
inline RowChains<kBlocks> ReadState(const RecurrenceParams& p, const float* columns,
                                    const float* k) {
  RowChains<kBlocks> sums;
  const auto row = [&](int r, int chain) {
    const F32x16 factor = Set1(k[r]);
    for (int b = 0; b < kBlocks; ++b)
      sums.chain[chain][b] =
          Fma(LoadF32(columns + r * p.state_stride + 16 * b), factor, sums.chain[chain][b]);
  };
  int r = 0;
  for (; r + 2 <= p.rows; r += 2) {
    row(r, 0);
    row(r + 1, 1);
  }
  if (r < p.rows) row(r, 0);
  return sums;
}

// S = decay S + k e^T; returns S^T q.
template <int kBlocks>
inline RowChains<kBlocks> ChangeState(const RecurrenceParams& p, float* columns, const float* k,
                                      const float* q, F32x16 decay, const F32x16* e) {
  RowChains<kBlocks> sums;
  const auto row = [&](int r, int chain) {
    const F32x16 key = Set1(k[r]), query = Set1(q[r]);
    for (int b = 0; b < kBlocks; ++b) {
      float* at = columns + r * p.state_stride + 16 * b;
      const F32x16 s = Fma(key, e[b], MulF(decay, LoadF32(at)));
      Store(at, s);
      sums.chain[chain][b] = Fma(s, query, sums.chain[chain][b]);
    }
  };
  int r = 0;
  for (; r + 2 <= p.rows; r += 2) {
    row(r, 0);
    row(r + 1, 1);
  }
  if (r < p.rows) row(r, 0);
  return sums;
}

template <int kBlocks>
inline void RecurBlocks(const RecurrenceParams& p, int column) {
  float* const columns = p.state + column;
  for (int t = 0; t < p.tokens; ++t) {
    const float *k = p.k + t * p.key_stride, *q = p.q + t * p.key_stride;
    const F32x16 decay = Set1(p.decay[t * p.gate_stride]);
    F32x16 e[kBlocks];
    for (int b = 0; b < kBlocks; ++b) e[b] = LoadF32(p.v + t * p.value_stride + column + 16 * b);
    if (p.beta != nullptr) {
      const RowChains<kBlocks> seen = ReadState<kBlocks>(p, columns, k);
      const F32x16 beta = Set1(p.beta[t * p.gate_stride]);
      for (int b = 0; b < kBlocks; ++b) e[b] = MulF(SubF(e[b], MulF(decay, seen.Sum(b))), beta);
    }
    const RowChains<kBlocks> read = ChangeState<kBlocks>(p, columns, k, q, decay, e);
    if (p.out == nullptr) continue;
    for (int b = 0; b < kBlocks; ++b)
      Store(p.out + t * p.out_stride + column + 16 * b, read.Sum(b));
  }
}

void Recurrence(const RecurrenceParams& p) {
  int column = 0;
  for (; column + 32 <= p.cols; column += 32) RecurBlocks<2>(p, column);
  for (; column + 16 <= p.cols; column += 16) RecurBlocks<1>(p, column);
}

}  // namespace
}  // namespace thermocline::kernels
