// Measures how fast the device behind a file reads blocks, in about two seconds, and caches the
// result per device in $XDG_CACHE_HOME/thermocline/flash (~/.cache/thermocline/flash).
#pragma once

#include <string>

#include "engine/store/block_reader.h"
#include "engine/store/device_curve.h"

namespace thermocline::store {

struct ProbeOptions {
  bool measure_anew = false;  // otherwise a cached measurement is used
  double seconds = 2;         // about; a slow device takes longer
};

// The curve of the device that `path` lies on, by reads of that file: the larger the file, the less
// the device's own cache helps. A cached measurement of a file below 256 MiB is not used for a
// larger one. Errors as OpenBlockReader; FailedPrecondition for a file below 4 KiB; Unavailable or
// DataLoss if reads fail.
Result<Curve> DeviceCurve(const std::string& path, const ProbeOptions& options = {});

// Measures without caching the result. Sets the reader's memory.
Result<Curve> MeasureCurve(BlockReader& reader, const std::string& device, double seconds);

}  // namespace thermocline::store
