// The memory and the processors that this process has and may have.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace thermocline::base {

// Bytes of this process in memory.
std::size_t ResidentBytes();

// Bytes this process may have in memory, all told: what is free now and what it has, at most the
// limits of its control groups (version 1 or 2) less what others in them have.
std::size_t MemoryAllowance();

// Bytes that a budget of `asked` bytes allows; 0 = MemoryAllowance less a tenth.
std::size_t MemoryBudget(std::int64_t asked = 0);

// Processors whose time the control groups (version 1 or 2) let this process use; infinity without
// a quota. `root`: the folder that /proc and /sys are in.
double ProcessorQuota(const std::string& root = "");

// Processors that this process can use at once: those of its affinity, and no more than its quota,
// rounded down. More threads would be stopped in the middle of each period, and the others wait for
// them.
int UsableProcessors();

// As /proc/cpuinfo names it; "unknown" where it does not.
std::string ProcessorName();

}  // namespace thermocline::base
