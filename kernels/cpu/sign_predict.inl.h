// sign_predict.h on vectors of 512 bits (AVX2 has its own, sign_rows_avx2.inl.h): XOR, AND and
// population counts, a row at a time.
//
// Bytes moved: the planes, once. Four slices take 12 instructions for a vector of 64 bytes where
// the processor counts bits in vectors. On one Zen 4 core, D 4096, four slices, GB/s:
//                                                               from the cache   from memory
//   a row at a time, inputs' bits loaded for each                      29              9
//   four rows at a time, one instruction for XOR and AND               26              8
//   the same, rows asked for 4 KiB ahead                               26             20
//   8 KiB ahead (16 KiB: 22 from memory; into the first level: 9)      26             24
#include "kernels/cpu/vector128.h"
#include "kernels/sign_predict.h"
#include "kernels/types.h"

namespace thermocline::kernels {
namespace {

// The counts of each slice, by their weights.
template <int kSlices>
inline I32x16 WeighSlices(const I32x16 (&counts)[kSlices]) {
  I32x16 sum = counts[0];
  for (int s = 1; s < kSlices; ++s) sum = AddI(sum, ShiftLeftI(counts[s], s));
  return sum;
}

}  // namespace
}  // namespace thermocline::kernels

#if defined(THERMOCLINE_VNNI_256)
#include "kernels/cpu/sign_rows_avx2.inl.h"
#else
namespace thermocline::kernels {
namespace {

constexpr int kAhead = 8192 / 8;  // words

// Four neighbouring rows share the loads of the input's bits.
template <int kSlices>
void SignScores4(const SignInput& x, const std::uint64_t* sign, int words, std::int32_t* scores) {
  I32x16 negative[4][kSlices];
  for (auto& row : negative) {
    for (I32x16& count : row) count = ZeroI();
  }
  for (int w = 0; w < words; w += 8) {
    const U8x64 x_sign = LoadU8(x.sign + w);
    U8x64 rows[4];
    for (int r = 0; r < 4; ++r) {
      rows[r] = LoadU8(sign + r * words + w);
      Prefetch(sign + r * words + w + kAhead);
    }
    for (int s = 0; s < kSlices; ++s) {
      const U8x64 slice = LoadU8(x.slice + s * words + w);
      for (int r = 0; r < 4; ++r)
        negative[r][s] = AddI(negative[r][s], CountBits(XorAnd(rows[r], x_sign, slice)));
    }
  }
  for (int r = 0; r < 4; ++r)
    scores[r] = x.total - 2 * SumLanesI(WeighSlices<kSlices>(negative[r]));
}

}  // namespace
}  // namespace thermocline::kernels
#endif

namespace thermocline::kernels {
namespace {

// One row, with its magnitudes if there are two planes.
template <int kSlices, bool kTwoPlanes>
std::int32_t SignScore(const SignInput& x, const std::uint64_t* sign,
                       const std::uint64_t* magnitude, int words) {
  I32x16 negative[kSlices], extra[kSlices];  // counts of each slice
  for (int s = 0; s < kSlices; ++s) negative[s] = extra[s] = ZeroI();
  for (int w = 0; w < words; w += 8) {
    const U8x64 row = LoadU8(sign + w), x_sign = LoadU8(x.sign + w);
    for (int s = 0; s < kSlices; ++s) {
      const U8x64 slice = LoadU8(x.slice + s * words + w), wrong = XorAnd(row, x_sign, slice);
      negative[s] = AddI(negative[s], CountBits(wrong));
      if constexpr (kTwoPlanes) {
        // Large weights that agree, less those that do not.
        const U8x64 large = LoadU8(magnitude + w);
        const I32x16 against = CountBits(AndBytes(large, wrong));
        extra[s] = AddI(extra[s], SubI(CountBits(AndBytes(large, slice)), AddI(against, against)));
      }
    }
  }
  const I32x16 sum = WeighSlices<kSlices>(negative);
  if constexpr (kTwoPlanes) return x.total - 2 * SumLanesI(SubI(sum, WeighSlices<kSlices>(extra)));
  return x.total - 2 * SumLanesI(sum);
}

template <int kSlices>
void SignRows(const SignScoresParams& p) {
  const int words = SignWords(p.planes.cols);
  int row = p.row_begin;
  const auto at = [&] { return StartOf(row, words); };
  std::int32_t* scores = p.scores;
  if (p.planes.magnitude != nullptr) {
    for (; row < p.row_end; ++row) {
      *scores++ =
          SignScore<kSlices, true>(p.input, p.planes.sign + at(), p.planes.magnitude + at(), words);
    }
    return;
  }
  for (; row + 4 <= p.row_end; row += 4, scores += 4)
    SignScores4<kSlices>(p.input, p.planes.sign + at(), words, scores);
  for (; row < p.row_end; ++row)
    *scores++ = SignScore<kSlices, false>(p.input, p.planes.sign + at(), nullptr, words);
}

void SignScores(const SignScoresParams& p) {
  switch (p.input.slices) {
    case 1:
      return SignRows<1>(p);
    case 2:
      return SignRows<2>(p);
    case 3:
      return SignRows<3>(p);
    case 4:
      return SignRows<4>(p);
    default:
      return SignRows<5>(p);
  }
}

}  // namespace
}  // namespace thermocline::kernels
