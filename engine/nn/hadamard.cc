#include "engine/nn/hadamard.h"

#include <cmath>

namespace thermocline::nn {
namespace {

void HadamardBlock(float* x, int size) {
  for (int half = 1; half < size; half *= 2) {
    for (int at = 0; at < size; at += 2 * half) {
      for (int i = at; i < at + half; ++i) {
        const float a = x[i], b = x[i + half];
        x[i] = a + b;
        x[i + half] = a - b;
      }
    }
  }
  const float scale = 1 / std::sqrt(static_cast<float>(size));
  for (int i = 0; i < size; ++i) x[i] *= scale;
}

}  // namespace

void Hadamard(float* x, int n) {
  const int size = n & -n;
  for (int at = 0; at < n; at += size) HadamardBlock(x + at, size);
}

}  // namespace thermocline::nn
