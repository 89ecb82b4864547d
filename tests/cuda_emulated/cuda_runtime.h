// CUDA's runtime on the processor, for tests: <cuda_runtime.h> of the sources in kernels/cuda when
// g++ compiles them. Kernels run for real, one block after the other; what a GPU would time, order
// or cache differently does not show here, what it would compute does.
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

// What <<<>>> does. `thread` is one thread's call of the kernel, its arguments held by value. The
// error, if there is one, is cudaGetLastError's.
void Launch(Where where, dim3 grid, dim3 block, std::size_t shared_bytes, cudaStream_t stream,
            std::function<void()> thread, Call call);

}  // namespace cuda_emulated
