// The hand-off between the device and the host: flags in mapped memory.
#include "kernels/cuda/sparse_ops.h"

namespace thermocline::kernels::THERMOCLINE_CUDA {
namespace {

constexpr int kThreads = 256;

__global__ void AdvanceKernel(std::uint32_t* epoch) { ++*epoch; }

__global__ void __launch_bounds__(kThreads) PublishKernel(DevicePublishParams p) {
  const auto* from = static_cast<const std::uint8_t*>(p.from);
  auto* to = static_cast<std::uint8_t*>(p.to);
  const std::size_t vectors = p.bytes / 16;
  for (std::size_t i = threadIdx.x; i < vectors; i += kThreads)
    reinterpret_cast<uint4*>(to)[i] = reinterpret_cast<const uint4*>(from)[i];
  for (std::size_t i = vectors * 4 + threadIdx.x; i < p.bytes / 4; i += kThreads)
    reinterpret_cast<std::uint32_t*>(to)[i] = reinterpret_cast<const std::uint32_t*>(from)[i];
  __threadfence_system();  // each thread's bytes before the flag
  __syncthreads();
  if (threadIdx.x == 0) ptx::StoreReleaseSystem(p.flag, *p.epoch);
}

__global__ void WaitKernel(DeviceWaitParams p) {
  const std::uint32_t epoch = *p.epoch;
  if (ptx::LoadAcquireSystem(p.error) != 0) return;
  for (std::uint64_t spins = 0; spins < p.spins_max; ++spins) {
    // Counters may wrap around: a flag that is not behind the epoch has arrived.
    if (static_cast<std::int32_t>(ptx::LoadAcquireSystem(p.flag) - epoch) >= 0) return;
  }
  ptx::StoreReleaseSystem(p.error, 1);
}

}  // namespace

DeviceError Advance(std::uint32_t* epoch, Stream stream) {
  return Launch(AdvanceKernel, dim3(1), dim3(1), 0, stream, epoch);
}

DeviceError Publish(const DevicePublishParams& p, Stream stream) {
  return Launch(PublishKernel, dim3(1), dim3(kThreads), 0, stream, p);
}

DeviceError Wait(const DeviceWaitParams& p, Stream stream) {
  return Launch(WaitKernel, dim3(1), dim3(1), 0, stream, p);
}

}  // namespace thermocline::kernels::THERMOCLINE_CUDA
