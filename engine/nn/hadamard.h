// A rotation that spreads a head's outliers over its dimensions, so that few bits hold them.
#pragma once

namespace thermocline::nn {

// x [n] times the normalised Hadamard matrix, in blocks of the largest power of two that divides n:
// its own inverse, so that products of rotated vectors are those of the vectors.
// Source: Ashkboos et al. 2024 (QuaRot).
void Hadamard(float* x, int n);

}  // namespace thermocline::nn
