// sign_predict.h on vectors of 512 bits: XOR, AND and population counts, a row at a time.
//
// Bytes moved: the planes, once. With four slices a vector of 64 bytes takes 13 instructions where
// the processor counts bits in vectors, so memory is the limit.
#include "kernels/sign_predict.h"

namespace thermocline::kernels {
namespace {

template <int kSlices, bool kTwoPlanes>
std::int32_t SignScore(const SignScoresParams& p, const std::uint64_t* sign,
                       const std::uint64_t* magnitude, int words) {
  I32x16 negative[kSlices], large[kSlices];  // counts of each slice
  for (int s = 0; s < kSlices; ++s) negative[s] = large[s] = ZeroI();
  for (int w = 0; w < words; w += 8) {
    const U8x64 differ = XorBytes(LoadU8(sign + w), LoadU8(p.input.sign + w));
    const U8x64 b = kTwoPlanes ? LoadU8(magnitude + w) : differ;
    for (int s = 0; s < kSlices; ++s) {
      const U8x64 slice = LoadU8(p.input.slice + s * words + w);
      const U8x64 wrong = AndBytes(differ, slice);
      negative[s] = AddI(negative[s], CountBits(wrong));
      if constexpr (kTwoPlanes) {
        // large - 2 large_negative, as the counts of both with a sign.
        large[s] = AddI(large[s],
                        SubI(CountBits(AndBytes(b, slice)),
                             AddI(CountBits(AndBytes(b, wrong)), CountBits(AndBytes(b, wrong)))));
      }
    }
  }
  I32x16 sum = ZeroI(), extra = ZeroI();
  for (int s = 0; s < kSlices; ++s) {
    sum = AddI(sum, ShiftLeftI(negative[s], s));
    if constexpr (kTwoPlanes) extra = AddI(extra, ShiftLeftI(large[s], s));
  }
  return p.input.total - 2 * SumLanesI(kTwoPlanes ? SubI(sum, extra) : sum);
}

template <int kSlices>
void SignRows(const SignScoresParams& p) {
  const int words = SignWords(p.planes.cols);
  for (int row = p.row_begin; row < p.row_end; ++row) {
    const std::ptrdiff_t at = static_cast<std::ptrdiff_t>(row) * words;
    p.scores[row - p.row_begin] =
        p.planes.magnitude != nullptr
            ? SignScore<kSlices, true>(p, p.planes.sign + at, p.planes.magnitude + at, words)
            : SignScore<kSlices, false>(p, p.planes.sign + at, nullptr, words);
  }
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
