// Scalar oracle of sign_predict.h.
#include "kernels/sign_predict.h"

#include <bit>

#include "kernels/reference/reference.h"

namespace thermocline::kernels::reference {

void SignScores(const SignScoresParams& p) {
  const int stride = SignWords(p.planes.cols);
  for (int row = p.row_begin; row < p.row_end; ++row) {
    const std::ptrdiff_t at = StartOf(row, stride);
    std::int32_t negative = 0, large = 0, large_negative = 0;
    for (int w = 0; w < stride; ++w) {
      const std::uint64_t differ = p.planes.sign[at + w] ^ p.input.sign[w];
      const std::uint64_t magnitude =
          p.planes.magnitude != nullptr ? p.planes.magnitude[at + w] : 0;
      for (int s = 0; s < p.input.slices; ++s) {
        const std::uint64_t slice = p.input.slice[s * stride + w];
        negative += std::popcount(differ & slice) << s;
        large += std::popcount(magnitude & slice) << s;
        large_negative += std::popcount(magnitude & differ & slice) << s;
      }
    }
    p.scores[row - p.row_begin] = p.input.total - 2 * negative + 2 * (large - 2 * large_negative);
  }
}

}  // namespace thermocline::kernels::reference
