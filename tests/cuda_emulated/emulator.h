// What the emulator offers tests beyond CUDA: machines to choose, faults on demand.
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
  std::size_t launches_max = 1024;  // of a stream that have not begun: who adds more waits
};
void SetMachine(const Machine& machine);
// Kernels run by `runner` instead of the emulator's fibers, on the thread of their stream; null: by
// fibers again. Between launches only.
using Runner = std::function<void(const Kernel&)>;
void RunKernelsBy(Runner runner);

// The memory there is now, in order of addresses.
struct Memory {
  std::uintptr_t begin, end;
  std::uint8_t* written;  // of device memory a byte for each: 0 where nobody has written; else null
};
std::vector<Memory> AllMemory();
// Device and mapped memory not given back, in bytes.
std::size_t Allocated();

}  // namespace cuda_emulated
