// Sizes of arrays on a device.
#pragma once

#include "engine/base/index.h"

namespace thermocline::gpu {

using base::Area;

// Bytes rounded up to the alignment of the next array.
constexpr std::size_t Aligned(std::size_t bytes) { return base::RoundUp(bytes, 256); }

}  // namespace thermocline::gpu
