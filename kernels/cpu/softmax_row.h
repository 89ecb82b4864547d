// The operations of attention's softmax on integers for ISAs that have one row at a time.
// Included by simd_avx2_weights.h and simd_neon_weights.h.
#pragma once

namespace thermocline::kernels {
namespace {

// Rows whose softmax is computed side by side.
constexpr int kSoftmaxRows = 1;

// Each row's maximum, or sum in SumLanes' order. RowOf gives one of them in all lanes.
inline F32x16 MaxOfRows(const F32x16 (&v)[kSoftmaxRows]) { return Set1(MaxLanes(v[0])); }
inline F32x16 SumsOfRows(const F32x16 (&v)[kSoftmaxRows]) { return Set1(SumLanes(v[0])); }
inline F32x16 RowOf(F32x16 rows, int) { return rows; }
inline void StoreRows(float* out, F32x16 rows) {
  alignas(64) float lanes[16];
  Store(lanes, rows);
  *out = lanes[0];
}

// Rounds to the nearest integer. Values are in [0, 255].
inline void StoreLevels(std::uint8_t* out, const F32x16 (&v)[4]) {
  for (int i = 0; i < 4; ++i) StoreU8(out + 16 * i, v[i]);
}

}  // namespace
}  // namespace thermocline::kernels
