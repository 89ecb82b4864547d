// attention.h in two steps: each chunk of positions alone, then the chunks' states merged in order.
//
// A block owns a chunk, a kv head and a token, for kGroup of the heads that share the kv head: its
// keys and values are read once for them. Threads own two neighbouring positions for the scores and
// two neighbouring dimensions for the values, as both lie side by side in the cache.
// Source: online softmax in parts, Dao et al., "Flash-Decoding".
#include "kernels/cuda/dense.h"
#include "kernels/cuda/panel_group.h"

namespace thermocline::kernels::THERMOCLINE_CUDA {
namespace {

constexpr int kThreads = 128, kWarps = kThreads / 32;
static_assert(kAttentionChunk == 2 * kThreads);

template <KvType kType>
constexpr DType kKeyType = KeyType(kType);

struct Range {
  int begin, end;
};
__device__ __forceinline__ Range PositionsOf(const DeviceAttentionParams& p, int token) {
  const int end = *p.position + token + 1;
  return {p.window > 0 ? max(0, end - p.window) : 0, end};
}

// [T, chunks, H] of max, total, out[Dh].
__device__ __forceinline__ float* StateOf(const DeviceAttentionParams& p, int token, int chunk,
                                          int chunks, int head) {
  const auto index = (static_cast<std::size_t>(token) * static_cast<std::size_t>(chunks) +
                      static_cast<std::size_t>(chunk)) *
                         static_cast<std::size_t>(p.heads) +
                     static_cast<std::size_t>(head);
  return p.scratch + index * static_cast<std::size_t>(p.head_dim + 2);
}

// Two neighbouring floats of a row that is not Q8_0.
template <KvType kType>
__device__ __forceinline__ float2 LoadPair(const std::uint8_t* base, int at) {
  if constexpr (kType == KvType::kF32) return __ldg(reinterpret_cast<const float2*>(base + 4 * at));
  const unsigned bits = LoadWord(base + 2 * at);
  return {FromHalfBits(bits & 0xFFFFU), FromHalfBits(bits >> 16)};
}

template <int kGroup>
struct Shared {
  float* q;       // [kGroup, Dh]; Q8_0: the levels as words [kGroup, Dh / 4]
  float* scale;   // [kGroup, Dh / 32], Q8_0
  float* scores;  // [kGroup, kAttentionChunk]
  float* sums;    // [kGroup, segments * Dh]

  __device__ __forceinline__ Shared(int head_dim) {
    q = ptx::DynamicShared<float>();
    scale = q + kGroup * head_dim;
    scores = scale + kGroup * ((head_dim + 31) / 32);
    sums = scores + kGroup * kAttentionChunk;
  }
};
int Segments(int head_dim) {
  const int pairs = (head_dim + 1) / 2;
  return pairs >= kThreads ? 1 : kThreads / pairs;
}
std::size_t SharedBytes(int group, int head_dim) {
  const int floats =
      group * (head_dim + (head_dim + 31) / 32 + kAttentionChunk + Segments(head_dim) * head_dim);
  return static_cast<std::size_t>(floats) * sizeof(float);
}

template <KvType kType, int kGroup>
__device__ __forceinline__ void LoadQueries(const DeviceAttentionParams& p, int token, int head,
                                            int heads, const Shared<kGroup>& shared) {
  const auto thread = static_cast<int>(threadIdx.x);
  const std::size_t row =
      static_cast<std::size_t>(token * p.heads + head) * static_cast<std::size_t>(p.head_dim);
  if constexpr (kType == KvType::kQ8_0) {
    const auto* words = reinterpret_cast<const float*>(p.q.q + row);
    for (int i = thread; i < kGroup * p.head_dim / 4; i += kThreads)
      shared.q[i] = i < heads * p.head_dim / 4 ? words[i] : 0.0F;
    for (int i = thread; i < kGroup * p.head_dim / 32; i += kThreads)
      shared.scale[i] =
          i < heads * p.head_dim / 32 ? p.q.scale[row / 32 + static_cast<std::size_t>(i)] : 0.0F;
  } else {
    for (int i = thread; i < kGroup * p.head_dim; i += kThreads)
      shared.q[i] = i < heads * p.head_dim ? p.q.x[row + static_cast<std::size_t>(i)] : 0.0F;
  }
}

// Scores of positions 2 thread and 2 thread + 1 of the chunk; `keys` is their panel, `lane` the
// first one's place in it.
template <KvType kType, int kGroup>
__device__ __forceinline__ void Scores(const std::uint8_t* keys, int lane, int head_dim,
                                       const Shared<kGroup>& shared, float2 (&dot)[kGroup]) {
  if constexpr (kType == KvType::kQ8_0) {
    constexpr int kBlockBytes = kPanelRows * 34;
    const auto* words = reinterpret_cast<const int*>(shared.q);
    for (int b = 0; b < head_dim / 32; ++b, keys += kBlockBytes) {
      int2 sums[kGroup] = {};
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const uint2 k =
            __ldg(reinterpret_cast<const uint2*>(keys + 32 + i * kQuadBytes + lane * 4));
#pragma unroll
        for (int g = 0; g < kGroup; ++g) {
          const int q = words[g * head_dim / 4 + b * 8 + i];
          sums[g].x = __dp4a(static_cast<int>(k.x ^ 0x80808080U), q, sums[g].x);
          sums[g].y = __dp4a(static_cast<int>(k.y ^ 0x80808080U), q, sums[g].y);
        }
      }
      const float2 d = LoadPair<KvType::kF16>(keys, lane);
#pragma unroll
      for (int g = 0; g < kGroup; ++g) {
        const float scale = shared.scale[g * head_dim / 32 + b];
        dot[g].x = __fmaf_rn(d.x * scale, static_cast<float>(sums[g].x), dot[g].x);
        dot[g].y = __fmaf_rn(d.y * scale, static_cast<float>(sums[g].y), dot[g].y);
      }
    }
  } else {
#pragma unroll 4
    for (int i = 0; i < head_dim; ++i) {
      const float2 k = LoadPair<kType>(keys, i * kPanelRows + lane);
#pragma unroll
      for (int g = 0; g < kGroup; ++g) {
        const float q = shared.q[g * head_dim + i];
        dot[g].x = __fmaf_rn(q, k.x, dot[g].x);
        dot[g].y = __fmaf_rn(q, k.y, dot[g].y);
      }
    }
  }
}

// Scores to exp(score - max), in shared memory; of each head's state the first two: max, total.
template <int kGroup>
__device__ __forceinline__ void Softmax(float2 (&scores)[kGroup], int heads,
                                        const Shared<kGroup>& shared, float* states,
                                        int state_floats) {
  __shared__ float parts[2][kGroup][kWarps];
  const auto thread = static_cast<int>(threadIdx.x), warp = thread / 32;
#pragma unroll
  for (int g = 0; g < kGroup; ++g) {
    float largest = fmaxf(scores[g].x, scores[g].y);
    for (int bits = 16; bits > 0; bits /= 2)
      largest = fmaxf(largest, __shfl_xor_sync(~0U, largest, bits));
    if (thread % 32 == 0) parts[0][g][warp] = largest;
  }
  __syncthreads();
#pragma unroll
  for (int g = 0; g < kGroup; ++g) {
    float largest = parts[0][g][0];
    for (int w = 1; w < kWarps; ++w) largest = fmaxf(largest, parts[0][g][w]);
    const float2 p = {expf(scores[g].x - largest), expf(scores[g].y - largest)};
    shared.scores[g * kAttentionChunk + 2 * thread] = p.x;
    shared.scores[g * kAttentionChunk + 2 * thread + 1] = p.y;
    float total = p.x + p.y;
    for (int bits = 16; bits > 0; bits /= 2) total += __shfl_xor_sync(~0U, total, bits);
    if (thread % 32 == 0) parts[1][g][warp] = total;
    if (thread == 0 && g < heads) states[g * state_floats] = largest;
  }
  __syncthreads();
  if (thread >= heads) return;
  float total = 0;
  for (int w = 0; w < kWarps; ++w) total += parts[1][thread][w];
  states[thread * state_floats + 1] = total;
}

// sums[segment] = the weighted values of every segments-th position. Positions are the chunk's.
template <KvType kType, int kGroup>
__device__ __forceinline__ void Values(const DeviceAttentionParams& p, int kv_head, int first,
                                       Range positions, int segments,
                                       const Shared<kGroup>& shared) {
  const int pairs = (p.head_dim + 1) / 2, thread = static_cast<int>(threadIdx.x);
  const int segment = segments == 1 ? 0 : thread / pairs;
  if (segment >= segments) return;
  const std::size_t offset =
      p.kv.values_offset + static_cast<std::size_t>(kv_head) * p.kv.head_stride;
  for (int pair = segments == 1 ? thread : thread % pairs; pair < pairs; pair += kThreads) {
    const int dim = 2 * pair;
    float2 acc[kGroup] = {};
#pragma unroll 4
    for (int s = positions.begin + segment; s < positions.end; s += segments) {
      const std::uint8_t* values = p.kv.blocks[s / kKvBlock] + offset;
      const int slot = s % kKvBlock;
      const int at = (dim / kPanelRows * kKvBlock + slot) * kPanelRows + dim % kPanelRows;
      float2 v;
      if constexpr (kType == KvType::kQ8_0) {
        const unsigned bits = LoadHalfBits(values + 2 * kKvBlock * (p.head_dim / 32) + at);
        const float d = FromHalfBits(LoadHalfBits(values + 2 * (dim / 32 * kKvBlock + slot)));
        v = {d * static_cast<float>(static_cast<std::int8_t>(bits & 255U)),
             d * static_cast<float>(static_cast<std::int8_t>(bits >> 8))};
      } else {
        v = LoadPair<kType>(values, at);
      }
#pragma unroll
      for (int g = 0; g < kGroup; ++g) {
        const float weight = shared.scores[g * kAttentionChunk + s - first];
        acc[g].x = __fmaf_rn(weight, v.x, acc[g].x);
        acc[g].y = __fmaf_rn(weight, v.y, acc[g].y);
      }
    }
#pragma unroll
    for (int g = 0; g < kGroup; ++g) {
      float* sums = shared.sums + (g * segments + segment) * p.head_dim + dim;
      sums[0] = acc[g].x;
      if (dim + 1 < p.head_dim) sums[1] = acc[g].y;
    }
  }
}

// Grid: [chunks, kv heads * tiles of the group, T].
template <KvType kType, int kGroup>
__global__ void __launch_bounds__(kThreads) AttendChunk(DeviceAttentionParams p, int segments) {
  const auto thread = static_cast<int>(threadIdx.x), token = static_cast<int>(blockIdx.z);
  const auto chunk = static_cast<int>(blockIdx.x), chunks = static_cast<int>(gridDim.x);
  const Range all = PositionsOf(p, token);
  const int first = chunk * kAttentionChunk;
  const Range positions = {max(all.begin, first), min(all.end, first + kAttentionChunk)};
  if (positions.begin >= positions.end) return;
  const int group = p.heads / p.kv_heads, tiles = (group + kGroup - 1) / kGroup;
  const int kv_head = static_cast<int>(blockIdx.y) / tiles;
  const int in_group = static_cast<int>(blockIdx.y) % tiles * kGroup;
  const int heads = min(kGroup, group - in_group), head = kv_head * group + in_group;
  const Shared<kGroup> shared(p.head_dim);
  float* const states = StateOf(p, token, chunk, chunks, head);  // of neighbouring heads
  LoadQueries<kType, kGroup>(p, token, head, heads, shared);
  __syncthreads();
  float2 scores[kGroup] = {};
  const int s = first + 2 * thread;
  if (s < positions.end && s + 1 >= positions.begin) {
    const std::uint8_t* keys = p.kv.blocks[s / kKvBlock] + p.kv.keys_offset +
                               static_cast<std::size_t>(kv_head) * p.kv.head_stride +
                               static_cast<std::size_t>(s % kKvBlock / kPanelRows) *
                                   SizesOf<kKeyType<kType>>::PanelBytes(p.head_dim);
    Scores<kType, kGroup>(keys, s % kPanelRows, p.head_dim, shared, scores);
  }
#pragma unroll
  for (int g = 0; g < kGroup; ++g) {
    if (s < positions.begin || s >= positions.end) scores[g].x = -INFINITY;
    if (s + 1 < positions.begin || s + 1 >= positions.end) scores[g].y = -INFINITY;
  }
  Softmax<kGroup>(scores, heads, shared, states, p.head_dim + 2);
  Values<kType, kGroup>(p, kv_head, first, positions, segments, shared);
  __syncthreads();
  for (int i = thread; i < heads * p.head_dim; i += kThreads) {
    const int g = i / p.head_dim, dim = i % p.head_dim;
    const float* sums = shared.sums + g * segments * p.head_dim + dim;
    float sum = sums[0];
    for (int part = 1; part < segments; ++part) sum += sums[part * p.head_dim];
    states[g * (p.head_dim + 2) + 2 + dim] = sum;
  }
}

// Grid: [H, T]. The formula of MergeAttention and FinishAttention.
__global__ void __launch_bounds__(kThreads) MergeChunks(DeviceAttentionParams p, int chunks) {
  const auto head = static_cast<int>(blockIdx.x), token = static_cast<int>(blockIdx.y);
  const Range all = PositionsOf(p, token);
  const int begin = all.begin / kAttentionChunk, end = (all.end - 1) / kAttentionChunk;
  for (int i = static_cast<int>(threadIdx.x); i < p.head_dim; i += kThreads) {
    const float* state = StateOf(p, token, begin, chunks, head);
    float largest = state[0], total = state[1], out = state[2 + i];
    for (int chunk = begin + 1; chunk <= end; ++chunk) {
      state = StateOf(p, token, chunk, chunks, head);
      const float both = fmaxf(state[0], largest);
      const float a = expf(largest - both), b = expf(state[0] - both);
      largest = both;
      total = total * a + state[1] * b;
      out = out * a + state[2 + i] * b;
    }
    p.out
        .x[static_cast<std::size_t>(token * p.heads + head) * static_cast<std::size_t>(p.head_dim) +
           static_cast<std::size_t>(i)] = out * __fdiv_rn(1.0F, total);
  }
}

template <KvType kType, int kGroup>
DeviceError Run(const DeviceAttentionParams& p, unsigned chunks, Stream stream) {
  const int group = p.heads / p.kv_heads, tiles = (group + kGroup - 1) / kGroup;
  const dim3 grid(chunks, static_cast<unsigned>(p.kv_heads * tiles),
                  static_cast<unsigned>(p.tokens));
  return Launch(AttendChunk<kType, kGroup>, grid, kThreads, SharedBytes(kGroup, p.head_dim), stream,
                p, Segments(p.head_dim));
}
template <KvType kType>
DeviceError RunGroup(const DeviceAttentionParams& p, unsigned chunks, Stream stream) {
  const int group = p.heads / p.kv_heads;
  if (group == 1) return Run<kType, 1>(p, chunks, stream);
  return group <= 4 ? Run<kType, 4>(p, chunks, stream) : Run<kType, 8>(p, chunks, stream);
}

}  // namespace

DeviceError Attention(const DeviceAttentionParams& p, Stream stream) {
  const auto chunks = static_cast<unsigned>((p.context + kAttentionChunk - 1) / kAttentionChunk);
  DeviceError error = p.kv.type == KvType::kF16    ? RunGroup<KvType::kF16>(p, chunks, stream)
                      : p.kv.type == KvType::kQ8_0 ? RunGroup<KvType::kQ8_0>(p, chunks, stream)
                                                   : RunGroup<KvType::kF32>(p, chunks, stream);
  const dim3 grid(static_cast<unsigned>(p.heads), static_cast<unsigned>(p.tokens));
  if (error == 0)
    error = Launch(MergeChunks, grid, kThreads, 0, stream, p, static_cast<int>(chunks));
  if (error != 0 || p.out.q == nullptr) return error;
  return Quantize({.x = p.out, .tokens = p.tokens}, stream);
}

}  // namespace thermocline::kernels::THERMOCLINE_CUDA
