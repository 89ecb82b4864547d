// ALiBi: instead of positions in the inputs, attention's scores fall with the distance of tokens.
// Source: Press et al. 2022, "Train Short, Test Long".
#pragma once

#include <bit>
#include <cmath>
#include <vector>

namespace thermocline::nn {

// Each head's slope: the powers of 2^(-8 / heads) for a power of two of heads; further heads have
// those between, of twice as many heads.
inline std::vector<float> AlibiSlopes(int heads) {
  constexpr double kRange = 8;
  const int even = static_cast<int>(std::bit_floor(static_cast<unsigned>(heads)));
  std::vector<float> slopes(heads);
  for (int h = 0; h < heads; ++h) {
    const double power = h < even ? h + 1.0 : (h - even) + 0.5;
    slopes[h] = static_cast<float>(std::exp2(-kRange / even * power));
  }
  return slopes;
}

}  // namespace thermocline::nn
