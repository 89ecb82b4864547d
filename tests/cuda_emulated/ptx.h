// Replaces kernels/cuda/ptx.h on the processor.
#pragma once

#include <sched.h>

#include <cstdint>

#include "tests/cuda_emulated/builtins.h"

namespace ptx {

template <typename T>
T* DynamicShared() {
  return static_cast<T*>(cuda_emulated::DynamicShared());
}

void MmaK32(int (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]);
void MmaK16(int (&c)[4], const unsigned (&a)[2], unsigned b);
// Copies at once. The interpreter checks that kernels wait for their copies (tests/ptx/copy.cc).
template <int kBytes>
void CopyAsync(void* to, const void* from, int bytes) {
  std::memset(to, 0, kBytes);
  if (bytes > 0) std::memcpy(to, from, static_cast<std::size_t>(bytes));
}
inline void CommitCopies() {}
template <int kGroups>
void WaitForCopies() {}
inline float HalfToFloat(std::uint16_t half) {
  return static_cast<float>(std::bit_cast<_Float16>(half));
}
std::uint16_t FloatToHalf(float value);

// A waiting kernel yields to the host, which may need this processor. A billion polls then take
// minutes here, as on a device.
inline std::uint32_t LoadAcquireSystem(const std::uint32_t* p) {
  sched_yield();
  return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}
inline void StoreReleaseSystem(std::uint32_t* p, std::uint32_t value) {
  __atomic_store_n(p, value, __ATOMIC_RELEASE);
}

}  // namespace ptx
