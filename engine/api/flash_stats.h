// Figures of the flash tier, for metrics and benchmarks.
#pragma once

#include <cstdint>

namespace thermocline {

// Sums since the start.
struct FlashCounters {
  std::int64_t reads = 0, bytes = 0;  // from the device, reads ahead included
  std::int64_t wanted_bytes = 0;      // of them, of bundles that were asked for
  std::int64_t retries = 0, io_errors = 0, crc_errors = 0;
  std::int64_t needed = 0, hits = 0;          // neurons of decoded tokens; found in memory
  std::int64_t ahead_useful_bytes = 0;        // read ahead and then needed
  std::int64_t ahead_wasted_bytes = 0;        // read ahead and given up unused
  std::int64_t evictions = 0, overflows = 0;  // neurons; overflows had no place in the cache
  std::int64_t passed =
      0;                // neurons read for drafted tokens alone that were expected to be refused
  double wait_s = 0;    // the decode thread had nothing else to do
  double manage_s = 0;  // finding, choosing, evicting
  double arrive_s = 0;  // checking and placing what was read
};

}  // namespace thermocline
