#include "loadtest/workload/random.h"

#include <bit>
#include <cmath>
#include <numbers>

namespace thermocline::loadtest {
namespace {

std::uint64_t SplitMix(std::uint64_t& state) {
  std::uint64_t z = state += 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

}  // namespace

Random::Random(std::uint64_t seed, std::uint64_t stream) {
  std::uint64_t state = stream;
  state = SplitMix(state) ^ seed;
  for (std::uint64_t& word : state_) word = SplitMix(state);
}

std::uint64_t Random::Next() {
  const std::uint64_t result = std::rotl(state_[1] * 5, 7) * 9, shifted = state_[1] << 17;
  state_[2] ^= state_[0];
  state_[3] ^= state_[1];
  state_[1] ^= state_[2];
  state_[0] ^= state_[3];
  state_[2] ^= shifted;
  state_[3] = std::rotl(state_[3], 45);
  return result;
}

double Random::Uniform() { return static_cast<double>(Next() >> 11) * 0x1p-53; }

std::uint64_t Random::Below(std::uint64_t count) {
  return static_cast<std::uint64_t>(Uniform() * static_cast<double>(count));
}

double Random::Exponential(double mean) { return -mean * std::log1p(-Uniform()); }

double Random::Normal() {
  const double radius = std::sqrt(Exponential(2));
  return radius * std::cos(2 * std::numbers::pi * Uniform());
}

double Random::Gamma(double shape) {
  // Below shape 1: a variate of shape + 1, scaled by a power of a uniform one.
  if (shape < 1) {
    const double power = std::pow(1 - Uniform(), 1 / shape);
    return Gamma(shape + 1) * power;
  }
  const double d = shape - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  while (true) {
    const double x = Normal(), t = 1 + c * x;
    if (t <= 0) continue;
    const double v = t * t * t, u = 1 - Uniform();
    if (std::log(u) < x * x / 2 + d - d * v + d * std::log(v)) return d * v;
  }
}

}  // namespace thermocline::loadtest
