// Checks of the sparse ops against the CPU's.
#pragma once

#include <vector>

#include "tests/gpu/check.h"

namespace thermocline::gpu {

// Every op, type and epilogue, small and odd shapes; with `large` also those of 7B models.
std::vector<Check> CheckSignPrediction(const kernels::DeviceOps& ops, bool large);
std::vector<Check> CheckLists(const kernels::DeviceOps& ops);
std::vector<Check> CheckGemmRows(const kernels::DeviceOps& ops, bool large);
std::vector<Check> CheckEpilogues(const kernels::DeviceOps& ops);
std::vector<Check> CheckSumRows(const kernels::DeviceOps& ops, bool large);
std::vector<Check> CheckHandOff(const kernels::DeviceOps& ops);
// One exchange of a kilobyte with the host, as in a shared layer.
Speed MeasureHandOff(const kernels::DeviceOps& ops);
std::vector<Check> CheckRead(const kernels::DeviceOps& ops);

// The memory bandwidth of reading and of copying (bytes read and written).
struct Bandwidth {
  double read_gb_s = 0, copy_gb_s = 0;
};
Bandwidth MeasureBandwidth(const kernels::DeviceOps& ops, bool tiny = false);

// The sparse ops of a 7B model's layer, each alone, and whole networks: `ratios` compares the dense
// network's time to that of networks with one neuron in ten active. `tiny` as in MeasureDense.
struct Ratio {
  std::string name, shape;
  double dense_us = 0, sparse_us = 0;
};
struct SparseSpeeds {
  std::vector<Speed> speeds;
  std::vector<Ratio> ratios;
};
SparseSpeeds MeasureSparse(const kernels::DeviceOps& ops, bool tiny = false);

}  // namespace thermocline::gpu
