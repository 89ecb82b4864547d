// Short names for the solver's frequent conversions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

namespace thermocline::placement {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

inline double D(std::int64_t value) { return static_cast<double>(value); }
inline std::size_t S(std::int64_t value) { return value; }

}  // namespace thermocline::placement
