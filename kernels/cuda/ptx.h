// Instructions that CUDA C++ has no name for. The tests' emulator has the same functions.
// Source: PTX ISA 7.0 (sm_80), "Matrix Fragments for mma.m16n8k32" and "...k16" with 8-bit
// integers.
#pragma once

#include <cstdint>

namespace ptx {

// The block's dynamic shared memory.
template <typename T>
__device__ __forceinline__ T* DynamicShared() {
  extern __shared__ uint4 dynamic_shared[];
  return reinterpret_cast<T*>(dynamic_shared);
}

// c[16, 8] += a[16, 32] b[32, 8], signed bytes, by all lanes of a warp. Lane 4g + t holds, as words
// of four neighbouring k:  a: (row g, k 4t), (g + 8, 4t), (g, 16 + 4t), (g + 8, 16 + 4t)
//                          b: (k 4t, column g), (16 + 4t, g)
//                          c: (row g, columns 2t, 2t + 1), (g + 8, the same)
__device__ __forceinline__ void MmaK32(int (&c)[4], const unsigned (&a)[4],
                                       const unsigned (&b)[2]) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
// The same with 16 columns of a: (row g, k 4t), (g + 8, 4t); b: (k 4t, column g).
__device__ __forceinline__ void MmaK16(int (&c)[4], const unsigned (&a)[2], unsigned b) {
  asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, "
      "{%0,%1,%2,%3};"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(b));
}

// Starts copying 4 or 16 bytes, both ends aligned to as many, to shared memory. Only the first
// `bytes` are read and the rest become zero; `from` is not read if `bytes` is 0. The copies that a
// thread has started since its last CommitCopies are a group. The thread sees a group's bytes after
// WaitForCopies; other threads see them after a later barrier.
template <int kBytes>
__device__ __forceinline__ void CopyAsync(void* to, const void* from, int bytes) {
  static_assert(kBytes == 4 || kBytes == 16);
  const auto shared = static_cast<unsigned>(__cvta_generic_to_shared(to));
  if constexpr (kBytes == 16)  // not kept in L1
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"(shared), "l"(from), "r"(bytes)
                 : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
                 :
                 : "r"(shared), "l"(from), "r"(bytes)
                 : "memory");
}
__device__ __forceinline__ void CommitCopies() {
  asm volatile("cp.async.commit_group;" : : : "memory");
}
// Waits until at most the last kGroups groups are in flight.
template <int kGroups>
__device__ __forceinline__ void WaitForCopies() {
  asm volatile("cp.async.wait_group %0;" : : "n"(kGroups) : "memory");
}

// f16 bits to f32, exact.
__device__ __forceinline__ float HalfToFloat(std::uint16_t half) {
  float out;
  asm("cvt.f32.f16 %0, %1;" : "=f"(out) : "h"(half));
  return out;
}
// f32 to f16 bits, to the nearest, ties to even.
__device__ __forceinline__ std::uint16_t FloatToHalf(float value) {
  std::uint16_t out;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(out) : "f"(value));
  return out;
}

// Flags shared with the host or another stream: writes before a release are visible after the
// acquire that reads it.
__device__ __forceinline__ std::uint32_t LoadAcquireSystem(const std::uint32_t* p) {
  std::uint32_t out;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(out) : "l"(p) : "memory");
  return out;
}
__device__ __forceinline__ void StoreReleaseSystem(std::uint32_t* p, std::uint32_t value) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" : : "l"(p), "r"(value) : "memory");
}

}  // namespace ptx
