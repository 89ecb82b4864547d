// The quality of a prediction: the positive class is ACTIVE.
#pragma once

#include <cstdint>
#include <span>

#include "engine/base/ratio.h"

namespace thermocline::predictor {

// Sums over audited tokens of one layer. A neuron is active if its h is not zero.
struct AuditCounts {
  std::int64_t tokens = 0;
  std::int64_t tp = 0;  // active and predicted
  std::int64_t fp = 0;  // predicted but not active: wasted bytes
  std::int64_t fn = 0;  // active but missed: lost quality
  std::int64_t tn = 0;
  double missed_mass = 0;  // sum of |h_i| ||d_i|| over the missed
  double total_mass = 0;   // over all active

  std::int64_t neurons() const { return tp + fp + fn + tn; }
  double recall() const { return tp + fn == 0 ? 1.0 : Share(tp, tp + fn); }
  double precision() const { return tp + fp == 0 ? 1.0 : Share(tp, tp + fp); }
  double active_share() const { return Share(tp + fn, neurons()); }
  double predicted_share() const { return Share(tp + fp, neurons()); }
  double missed_share() const { return total_mass > 0 ? missed_mass / total_mass : 0; }
  AuditCounts& operator+=(const AuditCounts& other);

 private:
  static double Share(std::int64_t part, std::int64_t whole) { return base::Ratio(part, whole); }
};

// One token of one layer. `predicted` and `active`: neurons, ascending; h [active] and down_norms
// [neurons] weigh them.
struct AuditSample {
  std::span<const int> predicted;
  std::span<const int> active;
  const float* h;
  const float* down_norms;
  int neurons;  // F
};
AuditCounts CountPrediction(const AuditSample& sample);

}  // namespace thermocline::predictor
