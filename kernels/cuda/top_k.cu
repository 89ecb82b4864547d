// The k largest logits, and the logarithm of the sum of all exponentials.
//
// A logit and its id become one number whose order is the order wanted (ties: the lower id is
// larger), so selecting is sorting integers. Each part of a token's logits is searched by a block,
// what the parts found by one more.
#include "kernels/cuda/dense.h"

namespace thermocline::kernels::THERMOCLINE_CUDA {
namespace {

using Key = unsigned long long;  // 0 = none

constexpr int kThreads = 512;
constexpr int kTile = 2048;  // keys sorted at once, the best so far among them
static_assert(kTile > 2 * kTopKMax);

__device__ __forceinline__ Key KeyOf(float logit, int id) {
  const unsigned bits = __float_as_uint(logit);
  const unsigned ordered = logit != logit ? 1U : bits ^ ((bits >> 31) != 0 ? ~0U : 0x80000000U);
  return static_cast<Key>(ordered) << 32 | (0xFFFFFFFFU - static_cast<unsigned>(id));
}
__device__ __forceinline__ int IdOf(Key key) {
  return static_cast<int>(0xFFFFFFFFU - static_cast<unsigned>(key));
}

// Largest first. Source: Batcher's bitonic network.
__device__ __forceinline__ void SortTile(Key* keys) {
  for (int size = 2; size <= kTile; size *= 2) {
    for (int stride = size / 2; stride > 0; stride /= 2) {
      __syncthreads();
      for (int i = static_cast<int>(threadIdx.x); i < kTile / 2; i += kThreads) {
        const int low = 2 * i - i % stride, high = low + stride;
        const bool descending = (low & size) == 0;
        const Key a = keys[low], b = keys[high];
        if ((a < b) == descending) {
          keys[low] = b;
          keys[high] = a;
        }
      }
    }
  }
  __syncthreads();
}

// keys[0 .. k) = the largest of at(0 .. n), largest first.
template <typename At>
__device__ __forceinline__ void Select(int n, int k, Key* keys, const At& at) {
  const auto thread = static_cast<int>(threadIdx.x);
  if (k == 1) {
    Key best = 0;
    for (int i = thread; i < n; i += kThreads) {
      const Key key = at(i);
      best = key > best ? key : best;
    }
    keys[thread] = best;
    for (int stride = kThreads / 2; stride > 0; stride /= 2) {
      __syncthreads();
      if (thread < stride && keys[thread + stride] > keys[thread])
        keys[thread] = keys[thread + stride];
    }
    __syncthreads();
    return;
  }
  const int more = kTile - kTopKMax;
  for (int begin = 0; begin < n; begin += more) {
    for (int i = thread; i < kTile; i += kThreads) {
      const int from = begin + i - kTopKMax;
      if (i < kTopKMax) {
        if (begin == 0 || i >= k) keys[i] = 0;
      } else {
        keys[i] = from < n ? at(from) : 0;
      }
    }
    SortTile(keys);
  }
}

// The parts' results: [T, parts, k] keys, then [T, parts] of max and sum.
struct Parts {
  Key* keys;
  float2* sums;

  __device__ __forceinline__ Parts(const DeviceTopKParams& p)
      : keys(static_cast<Key*>(p.scratch)),
        sums(reinterpret_cast<float2*>(keys + static_cast<std::size_t>(p.tokens) * kTopKParts *
                                                  static_cast<std::size_t>(p.k))) {}
};

// x, largest first in lane order, by all threads; `tree` is shared [kThreads].
template <typename Op>
__device__ __forceinline__ float Tree(float x, float* tree, const Op& op) {
  const auto thread = static_cast<int>(threadIdx.x);
  __syncthreads();
  tree[thread] = x;
  for (int stride = kThreads / 2; stride > 0; stride /= 2) {
    __syncthreads();
    if (thread < stride) tree[thread] = op(tree[thread], tree[thread + stride]);
  }
  __syncthreads();
  return tree[0];
}

// Grid: [parts, T].
__global__ void __launch_bounds__(kThreads) SearchParts(DeviceTopKParams p, int size) {
  __shared__ Key keys[kTile];
  __shared__ float tree[kThreads];
  const auto thread = static_cast<int>(threadIdx.x);
  const std::size_t token = blockIdx.y, index = token * gridDim.x + blockIdx.x;
  const int first = static_cast<int>(blockIdx.x) * size, count = min(size, p.n - first);
  const float* logits = p.logits + token * static_cast<std::size_t>(p.n) + first;
  const Parts parts(p);
  Select(count, p.k, keys, [&](int i) { return KeyOf(logits[i], first + i); });
  Key* to = parts.keys + index * static_cast<std::size_t>(p.k);
  for (int i = thread; i < p.k; i += kThreads) to[i] = keys[i];
  if (p.log_sum_exp == nullptr) return;
  float largest = -INFINITY, sum = 0;
  for (int i = thread; i < count; i += kThreads) largest = fmaxf(largest, logits[i]);
  largest = Tree(largest, tree, [](float a, float b) { return fmaxf(a, b); });
  if (largest > -INFINITY) {
    for (int i = thread; i < count; i += kThreads) sum += expf(logits[i] - largest);
  }
  sum = Tree(sum, tree, [](float a, float b) { return a + b; });
  if (thread == 0) parts.sums[index] = make_float2(largest, sum);
}

// Grid: [T].
__global__ void __launch_bounds__(kThreads) JoinParts(DeviceTopKParams p, int count) {
  __shared__ Key keys[kTile];
  const auto thread = static_cast<int>(threadIdx.x);
  const std::size_t token = blockIdx.x, k = static_cast<std::size_t>(p.k);
  const Parts parts(p);
  const Key* found = parts.keys + token * static_cast<std::size_t>(count) * k;
  Select(count * p.k, p.k, keys, [&](int i) { return found[i]; });
  for (int i = thread; i < p.k; i += kThreads) {
    const std::size_t at = token * k + static_cast<std::size_t>(i);
    p.ids[at] = IdOf(keys[i]);
    p.values[at] =
        p.logits[token * static_cast<std::size_t>(p.n) + static_cast<std::size_t>(p.ids[at])];
  }
  if (thread != 0 || p.log_sum_exp == nullptr) return;
  const float2* sums = parts.sums + token * static_cast<std::size_t>(count);
  float largest = -INFINITY, sum = 0;
  for (int i = 0; i < count; ++i) largest = fmaxf(largest, sums[i].x);
  for (int i = 0; i < count; ++i) {
    if (sums[i].y > 0) sum += sums[i].y * expf(sums[i].x - largest);
  }
  p.log_sum_exp[token] = largest + logf(sum);
}

}  // namespace

DeviceError TopK(const DeviceTopKParams& p, Stream stream) {
  if (p.k < 1 || p.k > kTopKMax || p.k > p.n) return cudaErrorInvalidValue;
  const int wanted = (p.n + kTile / 2 - 1) / (kTile / 2);
  const int parts = wanted < kTopKParts ? wanted : kTopKParts;
  const int size = (p.n + parts - 1) / parts, used = (p.n + size - 1) / size;
  const dim3 grid(static_cast<unsigned>(used), static_cast<unsigned>(p.tokens));
  const DeviceError error = Launch(SearchParts, grid, kThreads, 0, stream, p, size);
  if (error != 0) return error;
  return Launch(JoinParts, static_cast<unsigned>(p.tokens), kThreads, 0, stream, p, used);
}

}  // namespace thermocline::kernels::THERMOCLINE_CUDA
