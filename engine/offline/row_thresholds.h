// A separate threshold on an integer score for each neuron: predicted active if score >= threshold.
//
// One threshold for all neurons (SparseInfer's alpha) treats rows that are nearly always zero like
// rows that seldom are. Here every row has its own threshold, so that the layer keeps the required
// recall, or mass, with the fewest predicted neurons: by Lagrange, row i maximises worth *
// caught_i(t) - predicted_i(t) with one worth for all rows, found by bisection. Only the upper hull
// of a row's (predicted, caught) curve can win, so a row's best threshold takes one binary search.
// Rows with few active tokens are shrunk towards the best threshold of the whole layer's tokens at
// the same worth, by n / (n + shrinkage); the shrinkage and the worth are chosen on held-out
// tokens.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/base/status.h"
#include "engine/base/worker_pool.h"
#include "engine/offline/bit_matrix.h"

namespace thermocline::offline {

// One layer's tokens. Borrowed.
struct RowSamples {
  std::span<const std::int32_t> scores;  // [N, F]
  const BitMatrix* active = nullptr;     // [N, F]
  std::span<const float> masses;         // [N, F] |h| ||d||, read for active neurons; empty = all 1

  int tokens() const { return active->rows(); }
  int rows() const { return active->cols(); }
};

struct RowThresholdOptions {
  // Share of the active neurons, or of their mass, to be caught.
  double target = 0.95;
  bool by_mass = false;  // requires masses
};

// recall counts neurons; missed_mass weights them (by 1 without masses).
struct ThresholdQuality {
  double recall = 0, predicted_share = 0, active_share = 0, missed_mass = 0;
};

struct RowThresholds {
  std::vector<std::int32_t> thresholds;  // [F]
  ThresholdQuality held_out;
  double shrinkage = 0;  // active tokens at which a row's own threshold and the layer's weigh the
                         // same
  // The best single threshold for all rows at the same target.
  std::int32_t common = 0;
  ThresholdQuality common_held_out;
};

// InvalidArgument: no active neuron in one of the two, sizes that do not match, a target outside
// (0, 1], by_mass without masses.
Result<RowThresholds> FitRowThresholds(const RowSamples& train, const RowSamples& held_out,
                                       const RowThresholdOptions& options, base::WorkerPool& pool);

// `thresholds` [F], or one for all rows.
ThresholdQuality MeasureThresholds(const RowSamples& samples,
                                   std::span<const std::int32_t> thresholds);

}  // namespace thermocline::offline
