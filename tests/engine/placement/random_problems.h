// Small random problems of every kind, and the model of problem.h computed neuron by neuron.
#pragma once

#include <algorithm>
#include <random>

#include "engine/placement/placement.h"
#include "engine/placement/problem.h"

namespace thermocline::placement {

using Random = std::mt19937_64;

inline double Uniform(Random& random, double low, double high) {
  return std::uniform_real_distribution<double>(low, high)(random);
}
inline std::int64_t Whole(Random& random, std::int64_t low, std::int64_t high) {
  return std::uniform_int_distribution<std::int64_t>(low, high)(random);
}

inline Processor RandomProcessor(Random& random, double speed) {
  return {.dense_bytes_per_s = speed * Uniform(random, 0.5, 2),
          .rows_bytes_per_s = speed * Uniform(random, 0.2, 2),
          .predictor_bytes_per_s = speed * Uniform(random, 0.2, 2),
          .row_s = Uniform(random, 0, 0.3),
          .layer_s = Uniform(random, 0, 5)};
}

// Seconds and bytes have similar sizes, so that no part of the model is negligible.
inline Problem RandomProblem(Random& random, int layers_max, int neurons_max) {
  Problem p;
  p.machine.cold = RandomProcessor(random, Uniform(random, 5, 20));
  if (Whole(random, 0, 9) > 0) p.machine.hot = RandomProcessor(random, Uniform(random, 10, 100));
  p.machine.unified = Whole(random, 0, 4) == 0;
  p.machine.sync_s = Whole(random, 0, 1) == 0 ? 0 : Uniform(random, 0, 3);
  p.machine.link_bytes_per_s = Uniform(random, 1, 20);
  if (Whole(random, 0, 2) > 0) {
    p.machine.flash_reads_per_s = Uniform(random, 1, 10);
    p.machine.flash_bytes_per_s = Uniform(random, 5, 100);
  }
  p.batch = static_cast<int>(Whole(random, 1, 3));
  p.head_bytes = Whole(random, 0, 60);
  p.sync_bytes = Whole(random, 0, 5);
  p.hot_fixed_bytes = Whole(random, 0, 10);
  p.memory_fixed_bytes = Whole(random, 0, 10);
  std::int64_t bytes = p.head_bytes + 10;
  const bool alike = Whole(random, 0, 1) == 0;
  LayerShape shape;
  for (std::int64_t l = Whole(random, 1, layers_max); l > 0; --l) {
    if (p.layers.empty() || !alike) {
      shape = {.reading = static_cast<Reading>(Whole(random, 0, 2)),
               .overprediction = Uniform(random, 1, 3),
               .home_bytes = Whole(random, 0, 40),
               .kv_bytes = Whole(random, 0, 10),
               .deciding_bytes = Whole(random, 0, 10),
               .rest_bytes = Whole(random, 1, 20)};
      if (shape.reading == Reading::kPredicted) shape.predictor_bytes = Whole(random, 0, 3);
    }
    shape.frequency.resize(static_cast<std::size_t>(Whole(random, 1, neurons_max)));
    for (double& f : shape.frequency) f = Whole(random, 0, 3) == 0 ? 0.25 : Uniform(random, 0, 1);
    std::sort(shape.frequency.begin(), shape.frequency.end(), std::greater<>());
    bytes += shape.home_bytes + shape.kv_bytes + shape.row_bytes() * shape.neurons();
    p.layers.push_back(shape);
  }
  p.machine.hot_bytes = Whole(random, 0, bytes);
  p.machine.memory_bytes = Whole(random, bytes / 4, bytes + bytes / 4);
  if (Whole(random, 0, 3) == 0) p.machine.memory_bytes = 2 * bytes;
  return p;
}

// A placement by its counts of neurons.
struct Counts {
  int hot_homes = 0;
  bool head_hot = false, deciding_held = false;
  std::vector<std::int64_t> hot = {}, end = {};  // [L] hot neurons; neurons outside flash
};

struct Outcome {
  double seconds = 0;
  std::int64_t hot_bytes = 0, memory_bytes = 0;
  bool fits = true;
};

// The compute time of one neuron, and the read from flash.
inline double NeuronSeconds(const LayerShape& s, const Processor& p, double f) {
  const auto deciding = static_cast<double>(s.deciding_bytes),
             rest = static_cast<double>(s.rest_bytes);
  if (s.reading == Reading::kDense) return (deciding + rest) / p.dense_bytes_per_s;
  const double row = rest / p.rows_bytes_per_s + p.row_s;
  if (s.reading == Reading::kExact) return deciding / p.dense_bytes_per_s + f * row;
  return static_cast<double>(s.predictor_bytes) / p.predictor_bytes_per_s +
         std::min(1.0, s.overprediction * f) * (deciding / p.rows_bytes_per_s + p.row_s) + f * row;
}
inline double ReadSeconds(const LayerShape& s, const Machine& m, bool held, double f) {
  const double decided = s.reading == Reading::kPredicted ? std::min(1.0, s.overprediction * f) : 1;
  if (held) return f * m.FlashReadTime(static_cast<double>(s.rest_bytes));
  return decided * m.FlashReadTime(static_cast<double>(s.deciding_bytes + s.rest_bytes));
}

// The formulas of problem.h, directly.
inline Outcome Compute(const Problem& p, const Counts& counts) {
  const Machine& m = p.machine;
  const bool unified = m.hot.has_value() && m.unified;
  Outcome out;
  const auto side_of = [&](bool hot) -> const Processor& { return hot ? *m.hot : m.cold; };
  const auto hold = [&](bool hot, std::int64_t bytes) {
    (hot || unified ? out.hot_bytes : out.memory_bytes) += bytes;
  };
  for (std::size_t l = 0; l < p.layers.size(); ++l) {
    const LayerShape& s = p.layers[l];
    const bool home_hot = static_cast<int>(l) < counts.hot_homes;
    const bool held = counts.deciding_held && s.reading != Reading::kDense;
    const Processor& home = side_of(home_hot);
    out.seconds +=
        home.layer_s + static_cast<double>(s.home_bytes + s.kv_bytes) / home.dense_bytes_per_s;
    hold(home_hot, s.home_bytes + s.kv_bytes);
    double sums[2] = {};
    std::int64_t neurons[2] = {};
    for (std::int64_t i = 0; i < s.neurons(); ++i) {
      const double f = s.frequency[static_cast<std::size_t>(i)];
      const bool flash = i >= counts.end[l], hot = i < counts.hot[l] || unified;
      sums[hot] += NeuronSeconds(s, side_of(hot), f);
      ++neurons[hot];
      if (flash) out.seconds += ReadSeconds(s, m, held, f);
      hold(hot, s.predictor_bytes + (flash ? (held ? s.deciding_bytes : 0) : s.row_bytes()));
    }
    for (const bool hot : {false, true}) {
      if (neurons[hot] > 0 && hot != home_hot) sums[hot] += side_of(hot).layer_s;
    }
    out.seconds += std::max(sums[0], sums[1]);
    if (neurons[!home_hot] > 0)
      out.seconds += 2 * m.sync_s + static_cast<double>(p.sync_bytes) / m.link_bytes_per_s;
  }
  out.seconds += static_cast<double>(p.head_bytes) / side_of(counts.head_hot).dense_bytes_per_s;
  hold(counts.head_hot, p.head_bytes);
  const auto layers = static_cast<int>(p.layers.size());
  const bool last_hot = counts.hot_homes == layers;
  out.seconds += m.sync_s * ((counts.hot_homes > 0 && counts.hot_homes < layers ? 1 : 0) +
                             (last_hot != counts.head_hot ? 1 : 0));
  if (out.hot_bytes > 0) out.hot_bytes += p.hot_fixed_bytes;
  hold(false, p.memory_fixed_bytes);
  const std::int64_t room = unified ? std::min(m.hot_bytes, m.memory_bytes) : m.hot_bytes;
  out.fits = (out.hot_bytes == 0 || (m.hot.has_value() && out.hot_bytes <= room)) &&
             out.memory_bytes <= (unified ? 0 : m.memory_bytes);
  return out;
}

}  // namespace thermocline::placement
