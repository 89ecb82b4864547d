#include "engine/predictor/audit.h"

#include <cmath>

namespace thermocline::predictor {

AuditCounts& AuditCounts::operator+=(const AuditCounts& other) {
  tokens += other.tokens;
  tp += other.tp;
  fp += other.fp;
  fn += other.fn;
  tn += other.tn;
  missed_mass += other.missed_mass;
  total_mass += other.total_mass;
  return *this;
}

AuditCounts CountPrediction(const AuditSample& s) {
  AuditCounts counts{.tokens = 1};
  std::size_t p = 0;
  for (std::size_t a = 0; a < s.active.size(); ++a) {
    const int neuron = s.active[a];
    while (p < s.predicted.size() && s.predicted[p] < neuron) ++p;
    const double mass = std::fabs(double{s.h[a]}) * s.down_norms[neuron];
    counts.total_mass += mass;
    if (p < s.predicted.size() && s.predicted[p] == neuron) {
      ++counts.tp;
    } else {
      ++counts.fn;
      counts.missed_mass += mass;
    }
  }
  counts.fp = std::ssize(s.predicted) - counts.tp;
  counts.tn = s.neurons - counts.tp - counts.fp - counts.fn;
  return counts;
}

}  // namespace thermocline::predictor
