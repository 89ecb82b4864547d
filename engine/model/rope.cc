// The rotary frequencies of model_config.h.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "engine/model/model_config.h"

namespace thermocline::model {
namespace {

double Frequency(const RopeConfig& rope, int i) {
  return std::pow(rope.theta, -2.0 * i / rope.dim);
}

// Returns the dimension that makes `rotations` turns over the original context. Source: YaRN, 3.2.
double YarnDimension(const RopeConfig& rope, double rotations) {
  const double period = rope.original_max_position / (rotations * 2 * std::numbers::pi);
  return rope.dim * std::log(period) / (2 * std::log(rope.theta));
}

// Returns the interpolated share of dimension i: 0 for fast ones, 1 for slow ones.
double YarnInterpolation(const RopeConfig& rope, int i) {
  const double fast = YarnDimension(rope, rope.beta_fast),
               slow = YarnDimension(rope, rope.beta_slow);
  const double low = std::max(0.0, rope.truncate ? std::floor(fast) : fast);
  double high = std::min(rope.dim - 1.0, rope.truncate ? std::ceil(slow) : slow);
  if (low == high) high += 0.001;  // avoids a division by zero
  return std::clamp((i - low) / (high - low), 0.0, 1.0);
}

double Scaled(const RopeConfig& rope, int i) {
  const double frequency = Frequency(rope, i);
  switch (rope.scaling) {
    case RopeScaling::kLinear:
      return frequency / rope.factor;
    case RopeScaling::kYarn: {
      const double share = YarnInterpolation(rope, i);
      return frequency / rope.factor * share + frequency * (1 - share);
    }
    case RopeScaling::kNone:
    case RopeScaling::kLong:
      break;
  }
  return frequency;
}

// Returns the default magnitude of cos and sin.
double Magnitude(const RopeConfig& rope) {
  if (rope.factor <= 1) return 1;
  if (rope.scaling == RopeScaling::kYarn) return 0.1 * std::log(rope.factor) + 1;
  if (rope.scaling != RopeScaling::kLong) return 1;
  return std::sqrt(1 + std::log(rope.factor) / std::log(rope.original_max_position));
}

double Llama3Divisor(const Llama3Bands& bands, double frequency) {
  const double turns = bands.original_max_position * frequency / (2 * std::numbers::pi);
  if (turns > bands.high_freq_factor) return 1;
  if (turns < bands.low_freq_factor) return bands.factor;
  const double smooth =
      (turns - bands.low_freq_factor) / (bands.high_freq_factor - bands.low_freq_factor);
  return 1 / ((1 - smooth) / bands.factor + smooth);
}

}  // namespace

RopeFrequencies ComputeRopeFrequencies(const RopeConfig& rope, int context_length) {
  RopeFrequencies out;
  const bool beyond = rope.scaling == RopeScaling::kLong && !rope.long_divisors.empty() &&
                      context_length > rope.original_max_position;
  const std::vector<float>& divisors = beyond ? rope.long_divisors : rope.divisors;
  for (int i = 0; i < rope.dim / 2; ++i) {
    const double divisor = divisors.empty() ? 1.0 : double{divisors[i]};
    out.frequencies.push_back(Scaled(rope, i) / divisor);
  }
  out.magnitude = rope.attention_factor > 0 ? rope.attention_factor : Magnitude(rope);
  return out;
}

double NtkTheta(double theta, int dim, double factor) {
  if (dim <= 2) return theta;
  const double stretch = factor * factor - (factor - 1);  // factor * length / original - factor + 1
  return theta * std::pow(stretch, dim / (dim - 2.0));
}

std::vector<float> Llama3Divisors(const RopeConfig& rope, const Llama3Bands& bands) {
  std::vector<float> out;
  out.reserve(rope.dim / 2);
  for (int i = 0; i < rope.dim / 2; ++i)
    out.push_back(static_cast<float>(Llama3Divisor(bands, Frequency(rope, i))));
  return out;
}

}  // namespace thermocline::model
