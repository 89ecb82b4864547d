// Figures of the flash tier, for metrics and benchmarks.
#pragma once

#include <cstdint>

namespace thermocline {

// Sums since the start.
struct FlashCounters {
  std::int64_t reads = 0, bytes = 0;  // from the device, reads ahead included
  std::int64_t wanted_bytes = 0;      // the part of these bytes that belongs to requested bundles
  std::int64_t retries = 0, io_errors = 0, crc_errors = 0;
  std::int64_t needed = 0, hits = 0;          // neurons of decoded tokens; of these, in memory
  std::int64_t ahead_useful_bytes = 0;        // read ahead and then needed
  std::int64_t ahead_wasted_bytes = 0;        // read ahead and dropped unused
  std::int64_t evictions = 0, overflows = 0;  // neurons; overflows found no place in the cache
  std::int64_t passed =
      0;                // neurons read only for drafted tokens that were expected to be rejected
  double wait_s = 0;    // the decode thread was idle
  double manage_s = 0;  // lookups, choices, evictions
  double arrive_s = 0;  // checking and storing arrived data
};

}  // namespace thermocline
