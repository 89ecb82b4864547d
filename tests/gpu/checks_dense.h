// Checks of the dense ops against the CPU's.
#pragma once

#include <vector>

#include "tests/gpu/check.h"

namespace thermocline::gpu {

// Every type, small and odd shapes; with `large` also those of 7B models.
std::vector<Check> CheckGemm(const kernels::DeviceOps& ops, bool large);
std::vector<Check> CheckElementwise(const kernels::DeviceOps& ops);
std::vector<Check> CheckRotate(const kernels::DeviceOps& ops);
std::vector<Check> CheckAttention(const kernels::DeviceOps& ops, bool large);
// A graph that stores a token and attends to the cache, replayed as the sequence grows.
std::vector<Check> CheckReplay(const kernels::DeviceOps& ops);

// Speeds on shapes of 7B models, with different memory in each call; `tiny` shapes test the
// measurement itself.
std::vector<Speed> MeasureDense(const kernels::DeviceOps& ops, bool tiny = false);

}  // namespace thermocline::gpu
