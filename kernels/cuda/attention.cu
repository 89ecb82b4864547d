// attention.h in two steps: each chunk of positions alone, then the chunks' states merged in order.
//
// A block owns a chunk, a kv head and a token, for kGroup of the heads that share the kv head: its
// K and V are read once for them, in loads of 16 bytes of which a thread has eight in flight. For
// the scores a thread owns the positions of one load and a strided subset of the dimensions; the
// threads that share positions add up by shuffles and keep two positions each. For the values it
// owns the dimensions of one load and a strided subset of the positions.
// Source: online softmax in parts, Dao et al., "Flash-Decoding"; wide loads, Ye et al.,
// "FlashInfer".
//
// Bytes a thread has in flight (f16): 16 with pairs of positions (before), 128 with this.
#include "kernels/cuda/attention_chunk.h"
#include "kernels/cuda/warp_quantize.h"

namespace thermocline::kernels::THERMOCLINE_CUDA {
namespace {

// The fewest blocks of a multiprocessor. Without them ptxas saves registers and keeps two loads in
// flight.
constexpr int BlocksOf(int group) { return group == 1 ? 6 : group == 4 ? 4 : 3; }

// Grid: [chunks, kv heads * tiles of the group, T].
template <KvType kType, int kGroup>
__global__ void __launch_bounds__(kThreads, BlocksOf(kGroup))
    AttendChunk(DeviceAttentionParams p, int segments) {
  const int thread = threadIdx.x, token = blockIdx.z;
  const int chunk = blockIdx.x, chunks = gridDim.x;
  const Range all = PositionsOf(p, token);
  const int first = chunk * kAttentionChunk;
  const Range positions = {max(all.begin, first), min(all.end, first + kAttentionChunk)};
  if (positions.begin >= positions.end) return;
  const int group = p.heads / p.kv_heads, tiles = (group + kGroup - 1) / kGroup;
  const int kv_head = blockIdx.y / tiles;
  const int in_group = blockIdx.y % tiles * kGroup;
  const int heads = min(kGroup, group - in_group), head = kv_head * group + in_group;
  const Shared<kGroup> shared(p.head_dim);
  float* const states = StateOf(p, token, chunk, chunks, head);  // of neighbouring heads
  LoadQueries<kType, kGroup>(p, token, head, heads, shared);
  if (thread < kChunkBlocks && first + thread * kKvBlock < positions.end &&
      first + (thread + 1) * kKvBlock > positions.begin)
    shared.blocks[thread] = p.kv.tables[token][first / kKvBlock + thread];
  __syncthreads();
  float2 scores[kGroup];
  Scores<kType, kGroup>(p, kv_head, first, positions, shared, scores);
  const int s = first + 2 * thread;
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
  const int head = blockIdx.x, token = blockIdx.y;
  const Range all = PositionsOf(p, token);
  const int begin = all.begin / kAttentionChunk, end = (all.end - 1) / kAttentionChunk;
  for (int i = threadIdx.x; i < p.head_dim; i += kThreads) {
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
    const std::size_t at = StartOf(token * p.heads + head, p.head_dim) + i;
    const float value = out * __fdiv_rn(1.0F, total);
    p.out.x[at] = value;
    // Heads of whole warps; else another launch does it.
    if (p.out.q != nullptr && p.head_dim % 32 == 0) QuantizeBlock(value, at / 32, p.out);
  }
}

template <KvType kType, int kGroup>
DeviceError Run(const DeviceAttentionParams& p, int chunks, Stream stream) {
  const int group = p.heads / p.kv_heads, tiles = (group + kGroup - 1) / kGroup;
  const dim3 grid(chunks, p.kv_heads * tiles, p.tokens);
  const int segments = Segments(kGroup, p.head_dim, Loads<kType>::kDims);
  return Launch(AttendChunk<kType, kGroup>, grid, kThreads,
                SharedBytes(kGroup, p.head_dim, segments), stream, p, segments);
}
template <KvType kType>
DeviceError RunGroup(const DeviceAttentionParams& p, int chunks, Stream stream) {
  const int group = p.heads / p.kv_heads;
  if (group == 1) return Run<kType, 1>(p, chunks, stream);
  return group <= 4 ? Run<kType, 4>(p, chunks, stream) : Run<kType, 8>(p, chunks, stream);
}

}  // namespace

DeviceError Attention(const DeviceAttentionParams& p, Stream stream) {
  const int chunks = (p.context + kAttentionChunk - 1) / kAttentionChunk;
  DeviceError error = p.kv.type == KvType::kF16    ? RunGroup<KvType::kF16>(p, chunks, stream)
                      : p.kv.type == KvType::kQ8_0 ? RunGroup<KvType::kQ8_0>(p, chunks, stream)
                                                   : RunGroup<KvType::kF32>(p, chunks, stream);
  const dim3 grid(p.heads, p.tokens);
  if (error == 0) error = Launch(MergeChunks, grid, kThreads, 0, stream, p, chunks);
  if (error != 0 || p.out.q == nullptr || p.head_dim % 32 == 0) return error;
  return Quantize({.x = p.out, .tokens = p.tokens}, stream);
}

}  // namespace thermocline::kernels::THERMOCLINE_CUDA
