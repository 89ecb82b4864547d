// Errors and memory of the emulated device.
#pragma once

#include "tests/cuda_emulated/emulator.h"

namespace cuda_emulated {

// The limit of pending launches per stream on the current machine.
std::size_t LaunchesMax();
// Counts a call; returns the error that is injected there, if any.
cudaError_t NextCall();
// Records and returns `error`.
cudaError_t Failed(cudaError_t error);
// memmove and memset that record which device bytes were ever written.
void Copy(void* to, const void* from, std::size_t bytes);
void Set(void* to, int byte, std::size_t bytes);
// Waits until every stream is idle.
void DrainAll();

}  // namespace cuda_emulated
