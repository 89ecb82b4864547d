// Random layers with some neurons on a device, and sets of neurons.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "kernels/quantize.h"
#include "kernels/rows.h"
#include "tests/gpu/check.h"
#include "tests/kernels/random_rows.h"

namespace thermocline::gpu {

using kernels::DType;

inline std::string ShapeText(DType type, int rows, int cols, int tokens) {
  return std::string(kernels::Traits(type).name) + " " + std::to_string(rows) + "x" +
         std::to_string(cols) + " T" + std::to_string(tokens);
}

// Activations of T tokens, on the host and on the device.
struct Tokens {
  int tokens, cols;
  std::vector<float> x, scale, scaled_sum;
  std::vector<std::int8_t> q;
  std::vector<std::int32_t> sum, half_sum, pair_sum;
  Array<float> dx, dscale, dscaled_sum;
  Array<std::int8_t> dq;
  Array<std::int32_t> dsum, dhalf_sum;

  Tokens(const kernels::DeviceOps& ops, int t, int c)
      : tokens(t),
        cols(c),
        x(kernels::RandomFloats(static_cast<std::size_t>(t) * static_cast<std::size_t>(c), 7)),
        scale(x.size() / 32 + 1),
        scaled_sum(scale.size()),
        q(x.size()),
        sum(scale.size()),
        half_sum(scale.size()),
        pair_sum(2 * scale.size()),
        dx(ops, x.size()),
        dscale(ops, scale.size()),
        dscaled_sum(ops, scale.size()),
        dq(ops, q.size()),
        dsum(ops, sum.size()),
        dhalf_sum(ops, sum.size()) {
    if (c % 32 == 0) {
      kernels::ReferenceOps().quantize({.x = x.data(),
                                        .n = static_cast<int>(x.size()),
                                        .q = q.data(),
                                        .scale = scale.data(),
                                        .scaled_sum = scaled_sum.data(),
                                        .sum = sum.data(),
                                        .half_sum = half_sum.data(),
                                        .pair_sum = pair_sum.data()});
    }
    dx.Set(x);
    dscale.Set(scale);
    dscaled_sum.Set(scaled_sum);
    dq.Set(q);
    dsum.Set(sum);
    dhalf_sum.Set(half_sum);
  }
  kernels::Activations here() const {
    return {x.data(),   q.data(),        scale.data(),    scaled_sum.data(),
            sum.data(), half_sum.data(), pair_sum.data(), cols};
  }
  kernels::Activations there() const {
    return {dx, dq, dscale, dscaled_sum, dsum, dhalf_sum, nullptr, cols};
  }
};

// A layer's matrix in rows, of which the device holds two in three, in reverse order.
struct Layer {
  DType type;
  int neurons, cols;
  std::vector<std::uint8_t> rows;
  std::vector<std::int32_t> slots;
  Array<std::uint8_t> held;
  Array<std::int32_t> dslots;

  Layer(const kernels::DeviceOps& ops, DType t, int n, int c, bool all = false, unsigned seed = 11)
      : type(t),
        neurons(n),
        cols(c),
        rows(kernels::PackAllRows(t, kernels::RandomRows(t, n, c, seed), n, c)),
        slots(Slots(n, all)),
        held(ops, Held()),
        dslots(ops, slots) {}

  static std::vector<std::int32_t> Slots(int n, bool all) {
    std::vector<std::int32_t> slots(static_cast<std::size_t>(n), -1);
    std::int32_t next = 0;
    for (int i = n - 1; i >= 0; --i) {
      if (all || i % 3 != 1) slots[static_cast<std::size_t>(i)] = next++;
    }
    return slots;
  }
  std::vector<std::uint8_t> Held() const {
    const std::size_t bytes = kernels::RowBytes(type, cols);
    std::vector<std::uint8_t> out(rows.size());
    for (std::size_t i = 0; i < slots.size(); ++i) {
      if (slots[i] < 0) continue;
      std::copy_n(rows.data() + i * bytes, bytes,
                  out.data() + static_cast<std::size_t>(slots[i]) * bytes);
    }
    return out;
  }
  kernels::DeviceRows there() const { return {type, neurons, cols, held, dslots}; }
  kernels::RowMatrix here() const { return {type, neurons, cols, rows.data()}; }
};

// A NeuronSet on the device, and its content.
struct Set {
  int neurons;
  Array<std::uint16_t> masks;
  Array<std::int32_t> ids, starts, ticket;

  Set(const kernels::DeviceOps& ops, int n)
      : neurons(n),
        masks(ops, static_cast<std::size_t>(n)),
        ids(ops, static_cast<std::size_t>(n)),
        starts(ops, static_cast<std::size_t>(kernels::NumSumRuns(n)) + 1),
        ticket(ops, 1) {}
  kernels::NeuronSet view() const { return {masks, ids, starts, ticket}; }

  void Fill(const std::vector<std::uint16_t>& wanted) {
    masks.Set(wanted);
    auto [list, begin] = ListOf(wanted);
    list.resize(static_cast<std::size_t>(neurons));
    ids.Set(list);
    starts.Set(begin);
  }
  // The number of differences between the set and these masks.
  double DiffersFrom(const std::vector<std::uint16_t>& wanted) const {
    const auto [list, begin] = ListOf(wanted);
    auto got = ids.Get();
    got.resize(list.size());
    return Differing(masks.Get(), wanted) + Differing(got, list) + Differing(starts.Get(), begin) +
           (ticket.Get()[0] == 0 ? 0 : 1);
  }
  static std::pair<std::vector<std::int32_t>, std::vector<std::int32_t>> ListOf(
      const std::vector<std::uint16_t>& masks) {
    std::vector<std::int32_t> ids, starts;
    for (std::size_t i = 0; i < masks.size(); ++i) {
      if (i % kernels::kSumChunk == 0) starts.push_back(static_cast<std::int32_t>(ids.size()));
      if (masks[i] != 0) ids.push_back(static_cast<std::int32_t>(i));
    }
    starts.push_back(static_cast<std::int32_t>(ids.size()));
    return {ids, starts};
  }
};

// Masks of T tokens: each token has about one in `every` of the held neurons.
inline std::vector<std::uint16_t> SomeMasks(const std::vector<std::int32_t>& slots, int tokens,
                                            int every) {
  std::mt19937 generator(static_cast<unsigned>(every + tokens));
  std::vector<std::uint16_t> masks(slots.size());
  for (std::size_t i = 0; i < slots.size(); ++i) {
    for (int t = 0; slots[i] >= 0 && t < tokens; ++t)
      masks[i] |=
          static_cast<std::uint16_t>((generator() % static_cast<unsigned>(every) == 0) << t);
  }
  return masks;
}

}  // namespace thermocline::gpu
