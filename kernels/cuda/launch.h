// Launching kernels: the one place that knows whether nvcc or the tests' emulator compiles them.
//
// All sources of this folder lie in namespace thermocline::kernels::THERMOCLINE_CUDA, so that a
// program may hold them twice: compiled for the GPU and emulated. Instructions that CUDA C++ has no
// name for are in namespace ptx: kernels/cuda/ptx.h, or the emulator's <cuda_runtime.h>.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "kernels/device_types.h"

#ifdef __CUDACC__

#define THERMOCLINE_CUDA cuda
#include "kernels/cuda/ptx.h"

#define THERMOCLINE_LAUNCH(kernel, grid, block, shared_bytes, stream, ...) \
  kernel<<<grid, block, shared_bytes, static_cast<cudaStream_t>(stream.handle)>>>(__VA_ARGS__)
namespace thermocline::kernels::cuda {
using LaunchStream = Stream;
}

#else

#define THERMOCLINE_CUDA emulated
#define THERMOCLINE_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)               \
  cuda_emulated::Launch(                                                                 \
      stream.where, grid, block, shared_bytes, static_cast<cudaStream_t>(stream.handle), \
      [=] { kernel(__VA_ARGS__); }, cuda_emulated::MakeCall(kernel, __VA_ARGS__))
namespace thermocline::kernels::emulated {
struct LaunchStream {
  void* handle;
  cuda_emulated::Where where;  // of the launch, for messages
  LaunchStream(Stream stream, const char* file = __builtin_FILE(), int line = __builtin_LINE())
      : handle(stream.handle), where{file, line} {}
};
}  // namespace thermocline::kernels::emulated

#endif

namespace thermocline::kernels::THERMOCLINE_CUDA {

inline cudaStream_t Handle(Stream stream) { return static_cast<cudaStream_t>(stream.handle); }

// Launches blocks of `grid` with `shared_bytes` of dynamic shared memory (more than 48 KiB only for
// a kernel whose limit was raised). Returns the error of the launch, or an earlier one not yet
// reported.
template <typename... Params, typename... Args>
DeviceError Launch(void (*kernel)(Params...), dim3 grid, dim3 block, std::size_t shared_bytes,
                   LaunchStream stream, Args... args) {
  THERMOCLINE_LAUNCH(kernel, grid, block, shared_bytes, stream, static_cast<Params>(args)...);
  return cudaGetLastError();
}

}  // namespace thermocline::kernels::THERMOCLINE_CUDA
