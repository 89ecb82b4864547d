// The most recent audits of a layer: the current quality of its predictor, not the average since
// the start.
#pragma once

#include <array>

#include "engine/predictor/audit.h"

namespace thermocline::predictor {

class AuditWindow {
 public:
  static constexpr int kTokens = 64;

  void Add(const AuditCounts& audit) {
    last_[next_] = audit;
    next_ = (next_ + 1) % kTokens;
    sum_ = {};
    for (const AuditCounts& each : last_) sum_ += each;
  }
  // Over the last kTokens audits, or all if there were fewer.
  const AuditCounts& sum() const { return sum_; }

 private:
  std::array<AuditCounts, kTokens> last_ = {};
  int next_ = 0;
  AuditCounts sum_;
};

}  // namespace thermocline::predictor
