// The device side of the emulator: keywords, vector types and built-in functions of kernels.
//
// Threads of a block are fibers that switch only at barriers and warp collectives (fibers.h).
// Shared arrays are thread-local: a stream's kernels run on one host thread, a block at a time.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <utility>

#include "tests/cuda_emulated/fibers.h"

#define __global__ __attribute__((unused))
#define __device__ __attribute__((unused))
#define __host__
#define __constant__
#define __shared__ static thread_local
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __align__(n) alignas(n)

struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};
struct alignas(8) int2 {
  int x, y;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) int4 {
  int x, y, z, w;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
inline int2 make_int2(int x, int y) { return {x, y}; }
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline float2 make_float2(float x, float y) { return {x, y}; }
inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

inline constexpr int warpSize = 32;
inline thread_local uint3 threadIdx{}, blockIdx{};
inline thread_local dim3 blockDim, gridDim;

// Barriers and warp collectives. If a lane of the mask never arrives, that is a deadlock, and the
// program ends with the kernel's name.
inline void __syncthreads() { cuda_emulated::Barrier(); }
int __syncthreads_or(int predicate);
int __syncthreads_count(int predicate);
inline void __syncwarp(unsigned mask = 0xFFFFFFFFU) {
  cuda_emulated::Gather(mask, nullptr, [](void* const*, unsigned) {});
}
inline unsigned __activemask() { return 0xFFFFFFFFU; }

namespace cuda_emulated {

template <typename T>
struct Exchange {
  T value, result;
  int from;  // lane
};
// Every lane gets the value of the lane it names; a lane that is not in the mask gives 0.
template <typename T>
T Shuffle(unsigned mask, T value, int from) {
  Exchange<T> mine{value, value, from};
  Gather(mask, &mine, [](void* const* lanes, unsigned named) {
    for (int lane = 0; lane < 32; ++lane) {
      if (((named >> lane) & 1U) == 0) continue;
      auto* to = static_cast<Exchange<T>*>(lanes[lane]);
      const bool there = ((named >> to->from) & 1U) != 0;
      to->result = there ? static_cast<Exchange<T>*>(lanes[to->from])->value : T{};
    }
  });
  return mine.result;
}
struct Vote {
  bool predicate;
  unsigned ballot;
};
inline unsigned Ballot(unsigned mask, bool predicate) {
  Vote mine{predicate, 0};
  Gather(mask, &mine, [](void* const* lanes, unsigned named) {
    unsigned ballot = 0;
    for (int lane = 0; lane < 32; ++lane) {
      if (((named >> lane) & 1U) != 0 && static_cast<Vote*>(lanes[lane])->predicate)
        ballot |= 1U << lane;
    }
    for (int lane = 0; lane < 32; ++lane) {
      if (((named >> lane) & 1U) != 0) static_cast<Vote*>(lanes[lane])->ballot = ballot;
    }
  });
  return mine.ballot;
}
template <typename T, typename Op>
T Reduce(unsigned mask, T value, Op) {
  T mine[2] = {value, value};
  Gather(mask, mine, [](void* const* lanes, unsigned named) {
    const int first = std::countr_zero(named);
    T all = static_cast<T*>(lanes[first])[0];
    for (int lane = first + 1; lane < 32; ++lane) {
      if (((named >> lane) & 1U) != 0) all = Op{}(all, static_cast<T*>(lanes[lane])[0]);
    }
    for (int lane = first; lane < 32; ++lane) {
      if (((named >> lane) & 1U) != 0) static_cast<T*>(lanes[lane])[1] = all;
    }
  });
  return mine[1];
}
// The source lane of a shuffle of `width` lanes: the lane itself if the source is outside.
inline int Segment(int lane, int width) { return lane / width * width; }

}  // namespace cuda_emulated

template <typename T>
T __shfl_sync(unsigned mask, T value, int from, int width = 32) {
  const int lane = cuda_emulated::LaneId();
  return cuda_emulated::Shuffle(mask, value, cuda_emulated::Segment(lane, width) + from % width);
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32) {
  const int lane = cuda_emulated::LaneId(), from = lane ^ bits;
  const bool inside = from < cuda_emulated::Segment(lane, width) + width;
  return cuda_emulated::Shuffle(mask, value, inside ? from : lane);
}
template <typename T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  const int lane = cuda_emulated::LaneId(), from = lane + static_cast<int>(delta);
  const bool inside = from < cuda_emulated::Segment(lane, width) + width;
  return cuda_emulated::Shuffle(mask, value, inside ? from : lane);
}
template <typename T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  const int lane = cuda_emulated::LaneId(), from = lane - static_cast<int>(delta);
  const bool inside = from >= cuda_emulated::Segment(lane, width);
  return cuda_emulated::Shuffle(mask, value, inside ? from : lane);
}
inline unsigned __ballot_sync(unsigned mask, int predicate) {
  return cuda_emulated::Ballot(mask, predicate != 0);
}
inline int __any_sync(unsigned mask, int predicate) {
  return cuda_emulated::Ballot(mask, predicate != 0) != 0 ? 1 : 0;
}
inline int __all_sync(unsigned mask, int predicate) {
  return cuda_emulated::Ballot(mask, predicate == 0) == 0 ? 1 : 0;
}
template <typename T>
T __reduce_add_sync(unsigned mask, T value) {
  return cuda_emulated::Reduce(mask, value, [](T a, T b) { return static_cast<T>(a + b); });
}
template <typename T>
T __reduce_max_sync(unsigned mask, T value) {
  return cuda_emulated::Reduce(mask, value, [](T a, T b) { return a > b ? a : b; });
}
template <typename T>
T __reduce_min_sync(unsigned mask, T value) {
  return cuda_emulated::Reduce(mask, value, [](T a, T b) { return a < b ? a : b; });
}

// Integer functions.
inline int __dp4a(int a, int b, int sum) {
  for (int i = 0; i < 32; i += 8)
    sum += static_cast<std::int8_t>(a >> i) * static_cast<std::int8_t>(b >> i);
  return sum;
}
inline unsigned __dp4a(unsigned a, unsigned b, unsigned sum) {
  for (int i = 0; i < 32; i += 8) sum += ((a >> i) & 255U) * ((b >> i) & 255U);
  return sum;
}
inline unsigned __byte_perm(unsigned low, unsigned high, unsigned selector) {
  const std::uint64_t bytes = static_cast<std::uint64_t>(high) << 32 | low;
  unsigned out = 0;
  for (int i = 0; i < 4; ++i)
    out |= static_cast<unsigned>(bytes >> (8 * ((selector >> (4 * i)) & 7U)) & 255U) << (8 * i);
  return out;
}
inline int __popc(unsigned x) { return std::popcount(x); }
inline int __popcll(unsigned long long x) { return std::popcount(x); }
inline int __clz(int x) { return std::countl_zero(static_cast<unsigned>(x)); }
inline int __ffs(int x) { return x == 0 ? 0 : std::countr_zero(static_cast<unsigned>(x)) + 1; }
inline unsigned __brev(unsigned x) {
  unsigned out = 0;
  for (int i = 0; i < 32; ++i) out |= ((x >> i) & 1U) << (31 - i);
  return out;
}

template <typename T>
constexpr T min(T a, T b) {
  return b < a ? b : a;
}
template <typename T>
constexpr T max(T a, T b) {
  return a < b ? b : a;
}

// Float functions: exactly the named operation, whatever the compiler's flags.
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fsqrt_rn(float a) { return std::sqrt(a); }
inline float __frcp_rn(float a) { return 1.0F / a; }
inline float __int2float_rn(int a) { return static_cast<float>(a); }
inline int __float2int_rn(float a) { return static_cast<int>(std::nearbyint(a)); }
inline float __uint_as_float(unsigned a) { return std::bit_cast<float>(a); }
inline unsigned __float_as_uint(float a) { return std::bit_cast<unsigned>(a); }
inline float __int_as_float(int a) { return std::bit_cast<float>(a); }
inline int __float_as_int(float a) { return std::bit_cast<int>(a); }

// Memory functions.
template <typename T>
T __ldg(const T* p) {
  return *p;
}
template <typename T>
T __ldcs(const T* p) {
  return *p;
}
template <typename T>
T __ldcg(const T* p) {
  return *p;
}
namespace cuda_emulated {
inline int fence_word = 0;
// ThreadSanitizer does not support fences, but it supports operations on one word.
inline void Fence() { __atomic_fetch_add(&fence_word, 0, __ATOMIC_SEQ_CST); }
}  // namespace cuda_emulated
inline void __threadfence() { cuda_emulated::Fence(); }
inline void __threadfence_block() { cuda_emulated::Fence(); }
inline void __threadfence_system() { cuda_emulated::Fence(); }
void __nanosleep(unsigned ns);
[[noreturn]] void __trap();
template <typename T>
T atomicAdd(T* p, T value) {
  return __atomic_fetch_add(p, value, __ATOMIC_RELAXED);
}
template <typename T>
T atomicOr(T* p, T value) {
  return __atomic_fetch_or(p, value, __ATOMIC_RELAXED);
}
template <typename T>
T atomicExch(T* p, T value) {
  return __atomic_exchange_n(p, value, __ATOMIC_RELAXED);
}
template <typename T>
T atomicCAS(T* p, T expected, T value) {
  __atomic_compare_exchange_n(p, &expected, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  return expected;
}
template <typename T>
T atomicMax(T* p, T value) {
  T old = __atomic_load_n(p, __ATOMIC_RELAXED);
  while (old < value &&
         !__atomic_compare_exchange_n(p, &old, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
  return old;
}
template <typename T>
T atomicMin(T* p, T value) {
  T old = __atomic_load_n(p, __ATOMIC_RELAXED);
  while (value < old &&
         !__atomic_compare_exchange_n(p, &old, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
  return old;
}
