// The memory and processors that this process uses and may use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace thermocline::base {

// Bytes of this process in memory.
std::size_t ResidentBytes();

// Bytes that this process may use in total: free memory plus its own, but at most the limits of its
// control groups (version 1 or 2) less the usage of other processes in them.
std::size_t MemoryAllowance();

// Bytes that a budget of `asked` bytes allows; 0 = MemoryAllowance less a tenth.
std::size_t MemoryBudget(std::int64_t asked = 0);

// Processor time, in processors, that the control groups (version 1 or 2) allow this process;
// infinity without a quota. `root`: the folder that contains /proc and /sys.
double ProcessorQuota(const std::string& root = "");

// Processors that this process can use at once: those of its affinity, limited by its quota rounded
// down. With more threads than that, some would be stopped in the middle of each period while the
// others wait for them.
int UsableProcessors();

// The name in /proc/cpuinfo, or "unknown".
std::string ProcessorName();

}  // namespace thermocline::base
