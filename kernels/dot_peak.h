// Measures the peak multiply-add rate of a core: the dot-product instructions that an OpTable's
// quantised kernels use, on values held in registers, without loads, decoding or scaling.
#pragma once

#include <cstdint>

namespace thermocline::kernels {

// Bytes multiplied and added in one call of an OpTable's dot_peak(rounds).
//
//   reference  one multiply-add of integers a round
//   avx2       byte products added up in words (vpmaddubsw, vpaddw)
//   others     the ISA's own dot product of bytes to 32 bits, or product of tiles
//
// Q8_0 on AVX2 cannot be added up in words, and AMX decodes with AVX-512: their limits are lower.
//
// Returns multiply-adds. A round takes some nanoseconds.
using DotPeak = std::int64_t(int rounds);

}  // namespace thermocline::kernels
