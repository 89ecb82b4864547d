// The steps of a block of AttendChunk (attention.cu): queries to shared memory, scores, their
// softmax, the weighted sum of values. In an unnamed namespace, for attention.cu alone.
#pragma once

#include "kernels/cuda/dense.h"
#include "kernels/cuda/panel_group.h"

namespace thermocline::kernels::THERMOCLINE_CUDA {
namespace {

constexpr int kThreads = 128, kWarps = kThreads / 32;
constexpr int kAhead = 8;  // loads that a thread has in flight
constexpr int kChunkBlocks = kAttentionChunk / kKvBlock;
static_assert(kAttentionChunk == 2 * kThreads);

template <KvType kType>
constexpr DType kKeyType = KeyType(kType);

struct Range {
  int begin, end;
};
__device__ __forceinline__ Range PositionsOf(const DeviceAttentionParams& p, int token) {
  const int end = p.positions[token] + 1;
  return {p.window > 0 ? max(0, end - p.window) : 0, end};
}

// [T, chunks, H] of max, total, out[Dh].
__device__ __forceinline__ float* StateOf(const DeviceAttentionParams& p, int token, int chunk,
                                          int chunks, int head) {
  const std::size_t index = (StartOf(token, chunks) + chunk) * p.heads + head;
  return p.scratch + index * (p.head_dim + 2);
}

// The contents of one load of K or V.
template <KvType kType>
struct Loads {
  // Positions in a load of K, of 16 bytes.
  static constexpr int kPositions = kType == KvType::kF16 ? 8 : 4;
  // Dimensions in a load of V, of 16 bytes; Q8_0: of 8.
  static constexpr int kDims = kType == KvType::kF32 ? 4 : 8;
  // Threads that share positions, each with other dimensions. Together they keep two each.
  static constexpr int kSlices = kThreads * kPositions / kAttentionChunk;
  static_assert(kPositions == 2 * kSlices);
};

__device__ __forceinline__ uint4 LoadWide(const std::uint8_t* from) { return LoadAt<uint4>(from); }

// The floats of 16 bytes.
template <KvType kType>
__device__ __forceinline__ void ToFloats(const uint4& four,
                                         float (&out)[kType == KvType::kF32 ? 4 : 8]) {
  const unsigned words[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (kType == KvType::kF32) {
      out[i] = __uint_as_float(words[i]);
    } else {
      out[2 * i] = FromHalfBits(words[i] & 0xFFFFU);
      out[2 * i + 1] = FromHalfBits(words[i] >> 16);
    }
  }
}

template <int kGroup>
struct Shared {
  float* q;                     // [kGroup, Dh]; Q8_0: the levels as words [kGroup, Dh / 4]
  float* scale;                 // [kGroup, Dh / 32], Q8_0
  float* scores;                // [kGroup, kAttentionChunk]
  float* sums;                  // [kGroup, segments * Dh]
  const std::uint8_t** blocks;  // [kChunkBlocks] of the cache

  __device__ __forceinline__ Shared(int head_dim) {
    __shared__ const std::uint8_t* chunk[kChunkBlocks];
    blocks = chunk;
    q = ptx::DynamicShared<float>();
    scale = q + kGroup * head_dim;
    scores = scale + kGroup * ((head_dim + 31) / 32);
    sums = scores + kGroup * kAttentionChunk;
  }
};
std::size_t SharedBytes(int group, int head_dim, int segments) {
  const int floats =
      group * (head_dim + (head_dim + 31) / 32 + kAttentionChunk + segments * head_dim);
  return floats * sizeof(float);
}
// Threads that share dimensions of the values, each with other positions.
int Segments(int group, int head_dim, int dims) {
  constexpr std::size_t kSharedMax = 47 << 10;
  int segments = kThreads * dims / RoundUp(head_dim, kPanelRows);
  while (segments > 1 && SharedBytes(group, head_dim, segments) > kSharedMax) --segments;
  return segments < 1 ? 1 : segments;
}

template <KvType kType, int kGroup>
__device__ __forceinline__ void LoadQueries(const DeviceAttentionParams& p, int token, int head,
                                            int heads, const Shared<kGroup>& shared) {
  const int thread = threadIdx.x;
  const std::size_t row = StartOf(token * p.heads + head, p.head_dim);
  if constexpr (kType == KvType::kQ8_0) {
    const auto* words = reinterpret_cast<const float*>(p.q.q + row);
    for (int i = thread; i < kGroup * p.head_dim / 4; i += kThreads)
      shared.q[i] = i < heads * p.head_dim / 4 ? words[i] : 0.0F;
    for (int i = thread; i < kGroup * p.head_dim / 32; i += kThreads)
      shared.scale[i] = i < heads * p.head_dim / 32 ? p.q.scale[row / 32 + i] : 0.0F;
  } else {
    for (int i = thread; i < kGroup * p.head_dim; i += kThreads)
      shared.q[i] = i < heads * p.head_dim ? p.q.x[row + i] : 0.0F;
  }
}

// Products of the queries and this thread's share of the dimensions of `kPositions` keys, which lie
// from `lane` on in their panel.
template <KvType kType, int kGroup>
__device__ __forceinline__ void Products(const std::uint8_t* panel, int lane, int slice,
                                         int head_dim, const Shared<kGroup>& shared,
                                         float (&dot)[kGroup][Loads<kType>::kPositions]) {
  constexpr int kPositions = Loads<kType>::kPositions, kBytes = 16 / kPositions;
  constexpr int kStep = Loads<kType>::kSlices;
  for (int first = slice; first < head_dim; first += kStep * kAhead) {
    uint4 loaded[kAhead];
#pragma unroll
    for (int u = 0; u < kAhead; ++u) {
      const int i = min(first + u * kStep, head_dim - 1);
      loaded[u] = LoadWide(panel + (i * kPanelRows + lane) * kBytes);
    }
#pragma unroll
    for (int u = 0; u < kAhead; ++u) {
      const int i = first + u * kStep;
      float k[kPositions];
      ToFloats<kType>(loaded[u], k);
#pragma unroll
      for (int g = 0; g < kGroup; ++g) {
        const float q = i < head_dim ? shared.q[g * head_dim + i] : 0;
#pragma unroll
        for (int s = 0; s < kPositions; ++s) dot[g][s] = __fmaf_rn(q, k[s], dot[g][s]);
      }
    }
  }
}
// Q8_0: whole blocks of 32 dimensions, so that their sums are integers.
template <int kGroup>
__device__ __forceinline__ void ProductsQ8(const std::uint8_t* panel, int lane, int slice,
                                           int head_dim, const Shared<kGroup>& shared,
                                           float (&dot)[kGroup][4]) {
  const auto* words = reinterpret_cast<const int*>(shared.q);
  for (int b = slice; b < head_dim / 32; b += Loads<KvType::kQ8_0>::kSlices) {
    const std::uint8_t* block = panel + b * SizesOf<DType::kQ8_0>::kPanelBlockBytes;
    uint4 loaded[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) loaded[i] = LoadWide(block + 32 + i * kQuadBytes + lane * 4);
    int sums[kGroup][4] = {};
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const unsigned each[4] = {loaded[i].x, loaded[i].y, loaded[i].z, loaded[i].w};
#pragma unroll
      for (int g = 0; g < kGroup; ++g) {
        const int q = words[g * head_dim / 4 + b * 8 + i];
#pragma unroll
        for (int s = 0; s < 4; ++s) sums[g][s] = Dot4(each[s] ^ 0x80808080U, q, sums[g][s]);
      }
    }
    const uint2 halves = LoadAt<uint2>(block + lane * 2);
    const float d[4] = {FromHalfBits(halves.x & 0xFFFFU), FromHalfBits(halves.x >> 16),
                        FromHalfBits(halves.y & 0xFFFFU), FromHalfBits(halves.y >> 16)};
#pragma unroll
    for (int g = 0; g < kGroup; ++g) {
      const float scale = shared.scale[g * head_dim / 32 + b];
#pragma unroll
      for (int s = 0; s < 4; ++s)
        dot[g][s] = __fmaf_rn(d[s] * scale, static_cast<float>(sums[g][s]), dot[g][s]);
    }
  }
}

// Adds up the slices' parts of `kPositions` values; each keeps two neighbouring ones, in order.
template <int kPositions>
__device__ __forceinline__ float2 AddSlices(float (&values)[kPositions], int slice) {
#pragma unroll
  for (int keep = kPositions / 2; keep >= 2; keep /= 2) {
    const bool upper = (slice & (keep / 2)) != 0;
#pragma unroll
    for (int i = 0; i < keep; ++i) {
      const float mine = upper ? values[i + keep] : values[i],
                  theirs = upper ? values[i] : values[i + keep];
      values[i] = mine + __shfl_xor_sync(~0U, theirs, keep / 2);
    }
  }
  return {values[0], values[1]};
}

// Scores of positions 2 thread and 2 thread + 1 of the chunk that begins at `first`.
template <KvType kType, int kGroup>
__device__ __forceinline__ void Scores(const DeviceAttentionParams& p, int kv_head, int first,
                                       Range positions, const Shared<kGroup>& shared,
                                       float2 (&scores)[kGroup]) {
  constexpr int kPositions = Loads<kType>::kPositions, kSlices = Loads<kType>::kSlices;
  const int thread = threadIdx.x;
  const int slice = thread % kSlices, s = first + thread / kSlices * kPositions;
  float dot[kGroup][kPositions] = {};
  if (s < positions.end && s + kPositions > positions.begin) {
    const std::uint8_t* panel =
        shared.blocks[(s - first) / kKvBlock] + p.kv.keys_offset +
        StartOf(kv_head, p.kv.head_stride) +
        s % kKvBlock / kPanelRows * SizesOf<kKeyType<kType>>::PanelBytes(p.head_dim);
    if constexpr (kType == KvType::kQ8_0)
      ProductsQ8<kGroup>(panel, s % kPanelRows, slice, p.head_dim, shared, dot);
    else
      Products<kType, kGroup>(panel, s % kPanelRows, slice, p.head_dim, shared, dot);
  }
#pragma unroll
  for (int g = 0; g < kGroup; ++g) scores[g] = AddSlices<kPositions>(dot[g], slice);
}

// Scores to exp(score - max), in shared memory; of each head's state the first two: max, total.
template <int kGroup>
__device__ __forceinline__ void Softmax(float2 (&scores)[kGroup], int heads,
                                        const Shared<kGroup>& shared, float* states,
                                        int state_floats) {
  __shared__ float parts[2][kGroup][kWarps];
  const int thread = threadIdx.x, warp = thread / 32;
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

// Neighbouring dimensions of one position's value, as they lie.
template <KvType kType>
struct Value {
  uint4 wide;   // all types but Q8_0
  uint2 bytes;  // Q8_0, with their scale
  unsigned d;

  __device__ __forceinline__ void Load(const std::uint8_t* values, int dim, int slot,
                                       int head_dim) {
    const int at = (dim / kPanelRows * kKvBlock + slot) * kPanelRows + dim % kPanelRows;
    if constexpr (kType == KvType::kQ8_0) {
      bytes = LoadAt<uint2>(values + 2 * kKvBlock * (head_dim / 32) + at);
      d = LoadHalfBits(values + 2 * (dim / 32 * kKvBlock + slot));
    } else {
      wide = LoadWide(values + at * (16 / Loads<kType>::kDims));
    }
  }
  __device__ __forceinline__ void Get(float (&out)[Loads<kType>::kDims]) const {
    if constexpr (kType == KvType::kQ8_0) {
      const float scale = FromHalfBits(d);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const unsigned word = i < 4 ? bytes.x : bytes.y;
        out[i] = scale * static_cast<float>(static_cast<std::int8_t>(word >> (8 * (i % 4))));
      }
    } else {
      ToFloats<kType>(wide, out);
    }
  }
};

// sums[segment] = the weighted values of every segments-th position. Positions are the chunk's.
template <KvType kType, int kGroup>
__device__ __forceinline__ void Values(const DeviceAttentionParams& p, int kv_head, int first,
                                       Range positions, int segments,
                                       const Shared<kGroup>& shared) {
  constexpr int kDims = Loads<kType>::kDims;
  const int groups = RoundUp(p.head_dim, kPanelRows) / kDims, thread = threadIdx.x;
  const int segment = thread / groups;
  if (segment >= segments) return;
  const std::size_t offset = p.kv.values_offset + StartOf(kv_head, p.kv.head_stride);
  static_assert(kHeadDimMax / Loads<kType>::kDims <= kThreads);
  const int dim = thread % groups * kDims;
  float acc[kGroup][kDims] = {};
  for (int begin = positions.begin + segment; begin < positions.end; begin += segments * kAhead) {
    Value<kType> loaded[kAhead];
#pragma unroll
    for (int u = 0; u < kAhead; ++u) {
      const int s = min(begin + u * segments, positions.end - 1);
      loaded[u].Load(shared.blocks[(s - first) / kKvBlock] + offset, dim, s % kKvBlock, p.head_dim);
    }
#pragma unroll
    for (int u = 0; u < kAhead; ++u) {
      const int s = begin + u * segments;
      float v[kDims];
      loaded[u].Get(v);
#pragma unroll
      for (int g = 0; g < kGroup; ++g) {
        const float weight = s < positions.end ? shared.scores[g * kAttentionChunk + s - first] : 0;
#pragma unroll
        for (int i = 0; i < kDims; ++i) acc[g][i] = __fmaf_rn(weight, v[i], acc[g][i]);
      }
    }
  }
#pragma unroll
  for (int g = 0; g < kGroup; ++g) {
    float* sums = shared.sums + (g * segments + segment) * p.head_dim + dim;
#pragma unroll
    for (int i = 0; i < kDims; ++i) {
      if (dim + i < p.head_dim) sums[i] = acc[g][i];
    }
  }
}

}  // namespace
}  // namespace thermocline::kernels::THERMOCLINE_CUDA
