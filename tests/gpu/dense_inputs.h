// Random activations, on the host and on the device.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/op_table.h"
#include "tests/gpu/check.h"
#include "tests/kernels/random_rows.h"

namespace thermocline::gpu {

inline std::size_t Elements(int rows, int cols) {
  return static_cast<std::size_t>(rows) * static_cast<std::size_t>(cols);
}

// T tokens' floats and their Q8 form.
struct HostTokens {
  int tokens, cols;
  std::vector<float> x, scale, scaled_sum;
  std::vector<std::int8_t> q;
  std::vector<std::int32_t> sum, half_sum, pair_sum;

  HostTokens(int t, int c, std::vector<float> values)
      : tokens(t),
        cols(c),
        x(std::move(values)),
        scale(x.size() / 32),
        scaled_sum(scale),
        q(x.size()),
        sum(scale.size()),
        half_sum(scale.size()),
        pair_sum(2 * scale.size()) {
    Quantize();
  }
  void Quantize() {
    if (cols % 32 != 0) return;
    kernels::ReferenceOps().quantize({.x = x.data(),
                                      .n = static_cast<int>(x.size()),
                                      .q = q.data(),
                                      .scale = scale.data(),
                                      .scaled_sum = scaled_sum.data(),
                                      .sum = sum.data(),
                                      .half_sum = half_sum.data(),
                                      .pair_sum = pair_sum.data()});
  }
  kernels::Activations view() const {
    return {x.data(),   q.data(),        scale.data(),    scaled_sum.data(),
            sum.data(), half_sum.data(), pair_sum.data(), cols};
  }
};

struct DeviceTokens {
  int cols;
  Array<float> x, scale, scaled_sum;
  Array<std::int8_t> q;
  Array<std::int32_t> sum, half_sum;

  DeviceTokens(const kernels::DeviceOps& ops, int tokens, int c)
      : cols(c),
        x(ops, Elements(tokens, c)),
        scale(ops, x.size() / 32 + 1),
        scaled_sum(ops, scale.size()),
        q(ops, x.size()),
        sum(ops, scale.size()),
        half_sum(ops, scale.size()) {}
  DeviceTokens(const kernels::DeviceOps& ops, const HostTokens& from)
      : DeviceTokens(ops, from.tokens, from.cols) {
    x.Set(from.x);
    q.Set(from.q);
    scale.Set(from.scale);
    scaled_sum.Set(from.scaled_sum);
    sum.Set(from.sum);
    half_sum.Set(from.half_sum);
  }
  kernels::DeviceActivations view(bool quantised = true) const {
    return {x, quantised ? q.get() : nullptr, scale, scaled_sum, sum, half_sum, cols};
  }
};

// The number of elements of the device's Q8 form that differ from the host's.
inline double DifferingQ8(const DeviceTokens& device, const HostTokens& host) {
  const auto first = [&](auto values) {
    values.resize(host.scale.size());
    return values;
  };
  return Differing(device.q.Get(), host.q) + Differing(first(device.scale.Get()), host.scale) +
         Differing(first(device.scaled_sum.Get()), host.scaled_sum) +
         Differing(first(device.sum.Get()), host.sum) +
         Differing(first(device.half_sum.Get()), host.half_sum);
}

// The largest |a - b| / unit; infinite if one of them is not a number.
inline double Farthest(const std::vector<float>& a, const std::vector<float>& b,
                       const std::vector<double>& unit) {
  if (a.size() != b.size()) return INFINITY;
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double error = std::fabs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    if (std::isnan(error)) return INFINITY;
    if (error > 0) worst = std::max(worst, error / unit[i]);
  }
  return worst;
}

inline void Wait(const kernels::DeviceOps& ops) {
  MustDo(ops, ops.runtime.stream_synchronize({}), "waiting");
}

}  // namespace thermocline::gpu
