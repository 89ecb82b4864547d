// Errors and memory of the emulated device.
#pragma once

#include "tests/cuda_emulated/emulator.h"

namespace cuda_emulated {

// Of a stream, as the machine says.
std::size_t LaunchesMax();
// Counts a call; the error it must fail with, if a fault was injected there.
cudaError_t NextCall();
// Remembers and returns `error`.
cudaError_t Failed(cudaError_t error);
// memmove and memset that keep track of which bytes of the device were ever written.
void Copy(void* to, const void* from, std::size_t bytes);
void Set(void* to, int byte, std::size_t bytes);
// Waits until every stream is idle.
void DrainAll();

}  // namespace cuda_emulated
