// Keeps a layer's recall at its target with the fewest bytes, based on audits.
//
// The controlled variable is the shift of the predictor's threshold: a higher shift reads less and
// misses more. Recall falls as the shift rises, so the controller bisects between the largest shift
// known to keep the recall and the smallest known not to, and stops between them. It moves only
// when several audits justify it with confidence, in bounded steps, and converges on a stationary
// input: a shift that was found too high is not tried again until the input has changed.
#pragma once

#include <cstdint>

#include "engine/predictor/audit.h"

namespace thermocline::predictor {

struct ControllerParams {
  double recall = 0.97;       // target
  double slack = 0.01;        // recall above recall + slack is traded for bytes
  double tolerance = 0.0025;  // below recall, so that a mean at the target causes no random moves
  double step = 1;            // maximum step of the shift
  double step_min = 0.1;      // smaller moves are not made
  double shift_max = 100;     // bound of |shift|
  int audits_min = 8;         // minimum number of audited tokens for a decision
  int audits_max = 512;       // maximum; then older observations are halved in weight
};

// Thread-compatible.
class LayerController {
 public:
  explicit LayerController(const ControllerParams& params) : p_(params) {}

  // Adds one audited token. Returns true if the shift has moved.
  bool Observe(const AuditCounts& audit);
  double shift() const { return shift_; }
  // If frozen, it observes but does not move.
  void Freeze(bool frozen) { frozen_ = frozen; }
  bool frozen() const { return frozen_; }

  // Returns the recall over all active neurons of the audited tokens since the last move; 1 before
  // the first.
  double recall() const { return active_ > 0 ? found_ / active_ : 1.0; }
  std::int64_t moves() const { return moves_; }
  std::int64_t reversals() const { return reversals_; }  // moves against the previous one

 private:
  void Add(double found, double active);
  // Half the width of the confidence interval of recall(): two standard errors of a ratio of sums
  // over tokens. Neurons of one token are not independent, so tokens are the sample.
  double Uncertainty() const;
  bool Lower();
  bool Raise();
  bool MoveTo(double shift);

  const ControllerParams p_;
  double shift_ = 0;
  bool frozen_ = false;
  // Sums over audited tokens: their number, found and active neurons, and products of these.
  double tokens_ = 0, found_ = 0, active_ = 0;
  double found_found_ = 0, found_active_ = 0, active_active_ = 0;
  bool has_good_ = false, has_bad_ = false;
  double good_ = 0, bad_ = 0;  // largest shift that keeps the recall, smallest that does not
  std::int64_t moves_ = 0, reversals_ = 0;
  double direction_ = 0;
};

}  // namespace thermocline::predictor
