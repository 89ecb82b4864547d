#include "engine/predictor/controller.h"

#include <algorithm>
#include <cmath>

namespace thermocline::predictor {

void LayerController::Add(double found, double active) {
  if (tokens_ >= p_.audits_max) {
    for (double* sum :
         {&tokens_, &found_, &active_, &found_found_, &found_active_, &active_active_})
      *sum /= 2;
  }
  tokens_ += 1;
  found_ += found;
  active_ += active;
  found_found_ += found * found;
  found_active_ += found * active;
  active_active_ += active * active;
}

double LayerController::Uncertainty() const {
  if (tokens_ < 2) return 1;
  const double r = recall();
  const double square = found_found_ - 2 * r * found_active_ + r * r * active_active_;
  const double deviation = std::sqrt(std::max(0.0, square) / (tokens_ - 1) / tokens_);
  return 2 * deviation / (active_ / tokens_);
}

bool LayerController::Observe(const AuditCounts& audit) {
  if (audit.tp + audit.fn == 0) return false;  // no neuron was active, so there is nothing to learn
  Add(static_cast<double>(audit.tp), static_cast<double>(audit.tp + audit.fn));
  if (frozen_ || tokens_ < p_.audits_min) return false;
  const double sure = Uncertainty();
  if (recall() + sure < p_.recall - p_.tolerance) return Lower();
  if (recall() - sure > p_.recall + p_.slack) return Raise();
  return false;
}

// Called when the shift is too high.
bool LayerController::Lower() {
  has_bad_ = true;
  bad_ = shift_;
  if (has_good_ && good_ >= bad_) has_good_ = false;  // the input has changed
  if (!has_good_) return MoveTo(shift_ - p_.step);
  const double middle = (good_ + bad_) / 2;
  return MoveTo(bad_ - middle < p_.step_min ? good_ : middle);
}

// Called when the shift keeps more recall than necessary.
bool LayerController::Raise() {
  has_good_ = true;
  good_ = shift_;
  // A recall much higher than just below a bad shift means that the input has changed.
  const bool far = recall() - Uncertainty() > p_.recall + 3 * p_.slack;
  if (has_bad_ && (bad_ <= good_ || (far && bad_ - good_ < p_.step_min))) has_bad_ = false;
  if (!has_bad_) return MoveTo(shift_ + p_.step);
  const double middle = (good_ + bad_) / 2;
  return middle - good_ < p_.step_min ? false : MoveTo(middle);
}

bool LayerController::MoveTo(double shift) {
  const double bounded = std::clamp(shift, std::max(-p_.shift_max, shift_ - p_.step),
                                    std::min(p_.shift_max, shift_ + p_.step));
  if (bounded == shift_) return false;
  const double direction = bounded > shift_ ? 1 : -1;
  reversals_ += direction_ != 0 && direction != direction_ ? 1 : 0;
  direction_ = direction;
  shift_ = bounded;
  ++moves_;
  tokens_ = found_ = active_ = found_found_ = found_active_ = active_active_ = 0;
  return true;
}

}  // namespace thermocline::predictor
