// Random numbers that are the same for a seed on every machine and standard library.
//
// Source: xoshiro256** and splitmix64 by Blackman and Vigna; the gamma variate by Marsaglia and
// Tsang, "A Simple Method for Generating Gamma Variables", 2000.
#pragma once

#include <array>
#include <cstdint>

namespace thermocline::loadtest {

class Random {
 public:
  // `stream` selects an independent sequence of the seed: request 7 does not depend on request 6.
  explicit Random(std::uint64_t seed, std::uint64_t stream = 0);

  std::uint64_t Next();
  double Uniform();  // [0, 1)
  // A number from 0 to `count` - 1. Requires: count > 0.
  std::uint64_t Below(std::uint64_t count);
  double Exponential(double mean);
  double Normal();
  // Draws from the gamma distribution of mean `shape`. Requires: shape > 0.
  double Gamma(double shape);

 private:
  std::array<std::uint64_t, 4> state_;
};

}  // namespace thermocline::loadtest
