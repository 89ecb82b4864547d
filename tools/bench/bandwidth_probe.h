// Measures the memory bandwidth of the pool's threads when they only sum the bytes: the upper limit
// of decoding.
//
// It reads the weights themselves if they are far larger than the caches: in a virtual machine,
// memory that the host backs with large pages reads up to twice as fast, so another buffer would
// have another limit.
#pragma once

#include <cstdint>
#include <span>

#include "engine/base/huge_buffer.h"
#include "engine/base/worker_pool.h"

namespace thermocline::tools {

class BandwidthProbe {
 public:
  // Reads `weights`, which must outlive the probe, or 1 GiB of its own if they are small.
  static Result<BandwidthProbe> Create(std::span<const std::byte> weights);
  // The bandwidth of one pass, in GB/s.
  double MeasureGbPerS(base::WorkerPool& pool);
  bool reads_weights() const { return own_.size() == 0; }

 private:
  base::HugeBuffer own_;
  std::span<const std::byte> bytes_;
  volatile std::uint64_t checksum_ = 0;  // keeps the reads from being optimized away
};

}  // namespace thermocline::tools
