// The hot side of a layer of experts: some experts, computed elsewhere (a second part of the CPU, a
// GPU) while the cold side computes the others. It returns each token's product, and the cold side
// adds them in the order of the experts: the sum has the bits of one side.
#pragma once

#include <span>

#include "engine/ffn/expert_units.h"

namespace thermocline::ffn {

// Time and work of one side since the start.
struct PartitionCounters {
  double busy_s = 0;                   // computing, without waits for the other side
  std::int64_t steps = 0, active = 0;  // decoding steps (times layers); neurons some token needs
};

// The time of layers with two sides, by part, since the start.
struct HybridCounters {
  PartitionCounters hot, cold;
  double total_s = 0;
  double wait_s = 0;  // the cold side was idle

  HybridCounters& operator+=(const HybridCounters& other);
};

// Decode thread only.
class ExpertPartition {
 public:
  virtual ~ExpertPartition() = default;

  virtual bool Has(int layer, int expert) const = 0;
  struct Job {
    int layer;
    FfnInput input;                      // valid until Await, like the units
    std::span<ExpertUnit* const> units;  // of experts on this side; their h and up_out may be used
  };
  // Starts the job, and returns at once.
  virtual void Start(const Job& job) = 0;
  // [n, D] of the units' tokens, unit after unit: the down products, bias added, not weighted.
  // Valid until the next Start. Unavailable with the device's error; afterwards the partition must
  // not be used.
  virtual Result<const float*> Await() = 0;
  virtual double busy_s() const = 0;
};

}  // namespace thermocline::ffn
