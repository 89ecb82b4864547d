// Errors and memory of the emulated device.
#pragma once

#include "tests/cuda_emulated/emulator.h"

namespace cuda_emulated {

// Counts a call; the error it must fail with, if a fault was injected there.
cudaError_t NextCall();
// Remembers and returns `error`.
cudaError_t Failed(cudaError_t error);
// Waits until every stream is idle.
void DrainAll();

}  // namespace cuda_emulated
