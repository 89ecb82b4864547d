// The emulator's extensions for tests: selectable machines and injected faults.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "tests/cuda_emulated/fibers.h"
#include "tests/cuda_emulated/runtime_api.h"

namespace cuda_emulated {

struct Fault {
  int after = 0;  // calls of the runtime and launches that still succeed
  cudaError_t error = cudaSuccess;
  bool sticky = false;  // every later call fails, too, until cudaDeviceReset
};
// Injects a fault into later calls, of all threads; cudaSuccess removes it.
void Inject(const Fault& fault);
// The number of calls so far, for choosing a fault's position.
int Calls();

struct Machine {
  int devices = 1;
  std::size_t memory_bytes = std::size_t{4} << 30;
  cudaError_t count_error = cudaSuccess;  // result of cudaGetDeviceCount
  int major = 8, minor = 0;
  bool unified = false;
  std::size_t launches_max = 1024;  // pending launches per stream; further ones wait
};
void SetMachine(const Machine& machine);
// `runner` runs kernels instead of the emulator's fibers, on their stream's thread; nullptr
// restores the fibers. Requires: no launch is running.
using Runner = std::function<void(const Kernel&)>;
void RunKernelsBy(Runner runner);

// The current allocations, ordered by address.
struct Memory {
  std::uintptr_t begin, end;
  // A flag per byte of device memory, 0 = never written; nullptr for other memory.
  std::uint8_t* written;
};
std::vector<Memory> AllMemory();
// Device and mapped memory that is not freed, in bytes.
std::size_t Allocated();

}  // namespace cuda_emulated
