// The scalar functions of gates.
#pragma once

#include <cmath>

namespace thermocline::nn {

template <typename T>
T Sigmoid(T x) {
  return 1 / (1 + std::exp(-x));
}

// log(1 + exp(x)); above 20 it equals x in f32.
template <typename T>
T Softplus(T x) {
  constexpr T kLarge = 20;
  return x > kLarge ? x : std::log1p(std::exp(x));
}

}  // namespace thermocline::nn
