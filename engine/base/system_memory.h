// How much memory this process has, and may have; what processor it runs on.
#pragma once

#include <cstddef>
#include <string>

namespace thermocline::base {

// Bytes of this process in memory.
std::size_t ResidentBytes();

// Bytes this process may have in memory, all told: what is free now and what it has, at most the
// limits of its control groups (version 1 or 2) less what others in them have.
std::size_t MemoryAllowance();

// As /proc/cpuinfo names it; "unknown" where it does not.
std::string ProcessorName();

}  // namespace thermocline::base
