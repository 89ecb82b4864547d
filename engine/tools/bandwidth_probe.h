// Bytes per second at which the pool's threads read memory they only add up: the ceiling of
// decoding.
#pragma once

#include <cstdint>

#include "engine/base/huge_buffer.h"
#include "engine/base/worker_pool.h"

namespace thermocline::tools {

class BandwidthProbe {
 public:
  static Result<BandwidthProbe> Create();
  // Of one pass over 1 GiB on huge pages, in GB/s.
  double MeasureGbPerS(base::WorkerPool& pool);

 private:
  base::HugeBuffer buffer_;
  volatile std::uint64_t checksum_ = 0;  // so that the reads are not left out
};

}  // namespace thermocline::tools
