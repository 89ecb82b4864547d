// Random activations of some tokens, with their Q8 form if the width allows it.
#pragma once

#include "tests/kernels/random_rows.h"

namespace thermocline::kernels {

struct RandomTokens {
  std::vector<float> x, scale, scaled_sum;
  std::vector<std::int8_t> q;
  std::vector<std::int32_t> sum, half_sum, pair_sum;
  Activations view;

  RandomTokens(int tokens, int cols)
      : x(RandomFloats(static_cast<std::size_t>(tokens) * static_cast<std::size_t>(cols), 7)) {
    q.resize(x.size());
    scale.resize(x.size() / 32 + 1);
    scaled_sum.resize(scale.size());
    sum.resize(scale.size());
    half_sum.resize(scale.size());
    pair_sum.resize(2 * scale.size());
    if (cols % 32 == 0) {
      ReferenceOps().quantize({.x = x.data(),
                               .n = static_cast<int>(x.size()),
                               .q = q.data(),
                               .scale = scale.data(),
                               .scaled_sum = scaled_sum.data(),
                               .sum = sum.data(),
                               .half_sum = half_sum.data(),
                               .pair_sum = pair_sum.data()});
    }
    view = {x.data(),   q.data(),        scale.data(),    scaled_sum.data(),
            sum.data(), half_sum.data(), pair_sum.data(), cols};
  }
};

}  // namespace thermocline::kernels
