// The steps on Q, K and V between their product and attention: norms of heads, rotation, scaling,
// and storing in the cache.
#include "kernels/cuda/dense.h"
#include "kernels/cuda/norm_sum.h"
#include "kernels/cuda/warp_quantize.h"

namespace thermocline::kernels::THERMOCLINE_CUDA {
namespace {

constexpr int kThreads = 128;

__device__ __forceinline__ void StoreElement(KvType type, std::uint8_t* base, int at, float value) {
  if (type == KvType::kF32) {
    reinterpret_cast<float*>(base)[at] = value;
  } else {
    reinterpret_cast<std::uint16_t*>(base)[at] = ptx::FloatToHalf(value);
  }
}

// A lane's level of 32 values, and their f16 scale's bits: attention.h's Q8_0.
struct Level {
  int q;
  std::uint16_t scale;
};
__device__ __forceinline__ Level QuantizeGroup(float x) {
  const std::uint16_t half = ptx::FloatToHalf(__fdiv_rn(WarpMax(fabsf(x)), 127.0F));
  const float scale = ptx::HalfToFloat(half);
  const float inverse = scale > 0 ? __fdiv_rn(1.0F, scale) : 0.0F;
  const int q = __float2int_rn(__fmul_rn(x, inverse));
  return {max(-127, min(127, q)), half};
}

// Dimension i of the key at `slot` of its block; all lanes of a warp have neighbouring dimensions.
__device__ __forceinline__ void StoreKey(KvType type, std::uint8_t* keys, int slot, int head_dim,
                                         int i, float value) {
  const int lane = slot % kPanelRows, panel = slot / kPanelRows;
  if (type != KvType::kQ8_0)
    return StoreElement(type, keys, (panel * head_dim + i) * kPanelRows + lane, value);
  const Level level = QuantizeGroup(value);
  constexpr int kBlockBytes = kPanelRows * 34;
  std::uint8_t* block = keys + (panel * head_dim / 32 + i / 32) * kBlockBytes;
  if (i % 32 == 0) reinterpret_cast<std::uint16_t*>(block)[lane] = level.scale;
  block[32 + i % 32 / 4 * kQuadBytes + lane * 4 + i % 4] = static_cast<std::uint8_t>(level.q + 128);
}

__device__ __forceinline__ void StoreValue(KvType type, std::uint8_t* values, int slot,
                                           int head_dim, int i, float value) {
  const int at = (i / kPanelRows * kKvBlock + slot) * kPanelRows + i % kPanelRows;
  if (type != KvType::kQ8_0) return StoreElement(type, values, at, value);
  const Level level = QuantizeGroup(value);
  if (i % 32 == 0) reinterpret_cast<std::uint16_t*>(values)[i / 32 * kKvBlock + slot] = level.scale;
  values[2 * kKvBlock * (head_dim / 32) + at] = static_cast<std::uint8_t>(level.q);
}

// Norms and rotates `head`, which is shared.
__device__ __forceinline__ void NormAndRotate(const DeviceRotateParams& p, bool is_query,
                                              int position, float* head, float* tile,
                                              float* result) {
  const int thread = threadIdx.x;
  const float* weight = is_query ? p.q_norm : p.k_norm;
  if (weight != nullptr) {
    const auto value = [&](int i) { return head[i]; };
    const Moments moments =
        NormMoments(p.head_dim, p.rms, p.eps, tile, result, TileOf<decltype(value)>{value});
    for (int i = thread; i < p.head_dim; i += kThreads) {
      head[i] =
          Normed(head[i], moments, p.rms, weight[i], is_query ? p.q_norm_bias : p.k_norm_bias, i);
    }
    __syncthreads();
  }
  if (p.cos == nullptr) return;
  const int half = p.rope_dim / 2;
  const std::size_t at = StartOf(position, half);
  for (int i = thread; i < half; i += kThreads) {
    const int first = p.halves ? i : 2 * i, second = p.halves ? i + half : 2 * i + 1;
    const float a = head[first], b = head[second];
    const float cos = p.cos[at + i], sin = p.sin[at + i];
    head[first] = __fsub_rn(__fmul_rn(a, cos), __fmul_rn(b, sin));
    head[second] = __fadd_rn(__fmul_rn(a, sin), __fmul_rn(b, cos));
  }
  __syncthreads();
}

// A block for each head of Q, then of K and V, of each token.
__global__ void __launch_bounds__(kThreads) RotateTokens(DeviceRotateParams p) {
  __shared__ float tile[kHeadDimMax], head[kHeadDimMax];
  __shared__ float result;
  const int thread = threadIdx.x, token = blockIdx.y;
  const int position = p.positions[token];
  const int nth = blockIdx.x;
  const bool is_query = nth < p.heads;
  const int index = nth - (is_query ? 0 : p.heads);
  const std::size_t row = StartOf(token * (is_query ? p.heads : p.kv_heads) + index, p.head_dim);
  const float* from = (is_query ? p.q.x : p.k) + row;
  for (int i = thread; i < p.head_dim; i += kThreads) head[i] = from[i];
  __syncthreads();
  NormAndRotate(p, is_query, position, head, tile, &result);
  if (is_query) {
    for (int i = thread; i < p.head_dim; i += kThreads) {
      const float value = __fmul_rn(head[i], p.scale);
      p.q.x[row + i] = value;
      if (p.kv.type == KvType::kQ8_0) QuantizeBlock(value, (row + i) / 32, p.q);
    }
    return;
  }
  std::uint8_t* block = p.kv.tables[token][position / kKvBlock] + StartOf(index, p.kv.head_stride);
  for (int i = thread; i < p.head_dim; i += kThreads) {
    const int slot = position % kKvBlock;
    StoreKey(p.kv.type, block + p.kv.keys_offset, slot, p.head_dim, i, head[i]);
    StoreValue(p.kv.type, block + p.kv.values_offset, slot, p.head_dim, i, p.v[row + i]);
  }
}

}  // namespace

DeviceError Rotate(const DeviceRotateParams& p, Stream stream) {
  const dim3 grid(p.heads + p.kv_heads, p.tokens);
  return Launch(RotateTokens, grid, kThreads, 0, stream, p);
}

}  // namespace thermocline::kernels::THERMOCLINE_CUDA
