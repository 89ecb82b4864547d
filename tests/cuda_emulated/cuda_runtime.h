// CUDA's runtime on the processor, for tests. It replaces <cuda_runtime.h> when g++ compiles the
// sources in kernels/cuda. Kernels really run, one block after the other, so results are tested;
// timing, order and caching of a GPU are not.
#pragma once

#include <functional>

#include "tests/cuda_emulated/builtins.h"
#include "tests/cuda_emulated/ptx.h"
#include "tests/cuda_emulated/runtime_api.h"

namespace cuda_emulated {

template <typename Kernel, typename... Args>
Call MakeCall(Kernel* kernel, const Args&... args) {
  [[maybe_unused]] const auto bytes = [](const auto& value) {
    const auto* from = reinterpret_cast<const std::uint8_t*>(&value);
    return std::vector<std::uint8_t>(from, from + sizeof(value));
  };
  return {reinterpret_cast<const void*>(kernel), {bytes(args)...}};
}

// Implements <<<>>>. `thread` is one thread's call of the kernel, with copies of its arguments. An
// error is returned by cudaGetLastError.
void Launch(Where where, dim3 grid, dim3 block, std::size_t shared_bytes, cudaStream_t stream,
            std::function<void()> thread, Call call);

}  // namespace cuda_emulated
