// What the emulator offers tests beyond CUDA: machines to choose, faults on demand.
#pragma once

#include <cstddef>

#include "tests/cuda_emulated/runtime_api.h"

namespace cuda_emulated {

struct Fault {
  int after = 0;  // calls of the runtime and launches that still succeed
  cudaError_t error = cudaSuccess;
  bool sticky = false;  // every later call fails, too, until cudaDeviceReset
};
// Of the calls of all threads from now on; cudaSuccess: none.
void Inject(const Fault& fault);
// Calls so far: to choose a fault's place.
int Calls();

struct Machine {
  int devices = 1;
  std::size_t memory_bytes = std::size_t{4} << 30;
  cudaError_t count_error = cudaSuccess;  // of cudaGetDeviceCount
  int major = 8, minor = 0;
  bool unified = false;
};
void SetMachine(const Machine& machine);
// Device and mapped memory not given back, in bytes.
std::size_t Allocated();

}  // namespace cuda_emulated
