// Bytes per second at which the pool's threads read memory they only add up: the ceiling of
// decoding.
//
// It reads the weights themselves where they are far larger than the caches: in a virtual machine
// memory is not all alike (what the host backs with large pages reads up to twice as fast), so
// another buffer would have another ceiling.
#pragma once

#include <cstdint>
#include <span>

#include "engine/base/huge_buffer.h"
#include "engine/base/worker_pool.h"

namespace thermocline::tools {

class BandwidthProbe {
 public:
  // Reads `weights`, which outlive the probe, or 1 GiB of its own if they are small.
  static Result<BandwidthProbe> Create(std::span<const std::byte> weights);
  // Of one pass, in GB/s.
  double MeasureGbPerS(base::WorkerPool& pool);
  bool reads_weights() const { return own_.size() == 0; }

 private:
  base::HugeBuffer own_;
  std::span<const std::byte> bytes_;
  volatile std::uint64_t checksum_ = 0;  // so that the reads are not left out
};

}  // namespace thermocline::tools
