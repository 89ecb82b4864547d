// Sign prediction: packing inputs, scores and the list of neurons that reach their threshold.
//
// A warp takes four neighbouring neurons at once, 16 bytes of each per lane: a row of 4,096 signs
// is 512 bytes, one load. The input's bits are in shared memory. Bytes moved: the planes, once for
// all tokens.
#include "kernels/cuda/neuron_set.h"
#include "kernels/cuda/sparse_ops.h"

namespace thermocline::kernels::THERMOCLINE_CUDA {
namespace {

constexpr int kPackThreads = 256, kPackColumns = 2048;  // staged at once
constexpr int kWarps = kListThreads / 32, kRows = 4;
constexpr unsigned kAllLanes = 0xFFFFFFFFU;
constexpr std::size_t kStaticShared = 46 << 10;  // limit without an attribute call

__device__ inline float InputAt(const DevicePackSignParams& p, int token, int c) {
  const float* x = p.x + StartOf(token, p.x_stride);
  return x[p.columns != nullptr ? p.columns[c] : c];
}

// 1 / the step of a level; 0 if all inputs are zero.
__device__ float InverseStep(const DevicePackSignParams& p, int token) {
  __shared__ float staged[kPackColumns];
  __shared__ float chains[16];
  const int lane = threadIdx.x;
  float chain = 0;
  for (int begin = 0; begin < p.cols; begin += kPackColumns) {
    const int n = p.cols - begin < kPackColumns ? p.cols - begin : kPackColumns;
    __syncthreads();
    for (int i = lane; i < n; i += kPackThreads) staged[i] = InputAt(p, token, begin + i);
    __syncthreads();
    for (int i = lane; lane < 16 && i < n; i += 16) chain += staged[i] * staged[i];
  }
  if (lane < 16) chains[lane] = chain;
  __syncthreads();
  float sum = 0;
  for (int i = 0; i < 16; ++i) sum += chains[i];
  const float rms = sqrtf(sum / static_cast<float>(p.cols));
  constexpr float kSteps[kSignSlicesMax + 1] = {kSliceStep[0], kSliceStep[1], kSliceStep[2],
                                                kSliceStep[3], kSliceStep[4], kSliceStep[5]};
  return rms > 0 ? 1 / (rms * kSteps[p.slices]) : 0;
}

// A block for each token; a warp packs 32 columns into a half of a word of each plane.
__global__ void __launch_bounds__(kPackThreads) PackSignInputKernel(DevicePackSignParams p) {
  __shared__ int total;
  const int token = blockIdx.x, lane = threadIdx.x % 32;
  const int halves = SignWords(p.cols) * 2, largest = (1 << p.slices) - 1;
  const float inverse = p.slices > 1 ? InverseStep(p, token) : 0;
  if (threadIdx.x == 0) total = 0;
  __syncthreads();
  auto* out =
      reinterpret_cast<std::uint32_t*>(p.words + StartOf(token, SignInputWords(p.cols, p.slices)));
  int sum = 0;
  for (int half = threadIdx.x / 32; half < halves; half += kPackThreads / 32) {
    const int c = half * 32 + lane;
    const float x = c < p.cols ? InputAt(p, token, c) : 0;
    const float level = fabsf(x) * inverse + 0.5F;
    int m = level < static_cast<float>(largest) ? static_cast<int>(level) : largest;
    if (p.slices == 1) m |= 1;
    if (c >= p.cols) m = 0;
    const unsigned sign = __ballot_sync(kAllLanes, x < 0 ? 1 : 0);
    if (lane == 0) out[half] = sign;
    for (int s = 0; s < p.slices; ++s) {
      const unsigned slice = __ballot_sync(kAllLanes, (m >> s) & 1);
      if (lane == 0) out[(1 + s) * halves + half] = slice;
      sum += __popc(slice) << s;
    }
  }
  if (lane == 0) atomicAdd(&total, sum);
  __syncthreads();
  if (threadIdx.x == 0) p.totals[token] = total;
}

// Returns the share of one 32-bit word of a row in (total - score) / 2.
__device__ inline int WordScore(std::uint32_t differ, std::uint32_t large, std::uint32_t slice) {
  return __popc(differ & slice) - __popc(large & slice) + 2 * __popc(large & differ & slice);
}

// Returns the share of 16 bytes of a row's planes in (total - score) / 2 for one token. `at`: their
// index in the plane; `line`: units of 16 bytes in a plane.
__device__ inline int Compare(const uint4& sign, const uint4& magnitude, const uint4* input, int at,
                              int line, int slices) {
  const uint4 x = input[at];
  const uint4 differ = {sign.x ^ x.x, sign.y ^ x.y, sign.z ^ x.z, sign.w ^ x.w};
  int sum = 0;
  for (int s = 0; s < slices; ++s) {
    const uint4 slice = input[(1 + s) * line + at];
    sum += (WordScore(differ.x, magnitude.x, slice.x) + WordScore(differ.y, magnitude.y, slice.y) +
            WordScore(differ.z, magnitude.z, slice.z) + WordScore(differ.w, magnitude.w, slice.w))
           << s;
  }
  return sum;
}

// sums[i] = (total - score) / 2 of row rows[i] for one token, in all lanes. `total` is the sum of
// the token's levels (PackSignInputs).
template <bool two_planes>
__device__ void ScoreRows(const DeviceSignPredictParams& p, const int rows[kRows],
                          const uint4* input, int lane, int sums[kRows]) {
  const int line = SignWords(p.planes.cols) / 2;
  const auto* signs = reinterpret_cast<const uint4*>(p.planes.sign);
  const auto* magnitudes = reinterpret_cast<const uint4*>(p.planes.magnitude);
#pragma unroll
  for (int i = 0; i < kRows; ++i) sums[i] = 0;
  for (int at = lane; at < line; at += 32) {
    uint4 sign[kRows], magnitude[kRows] = {};
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      if (rows[i] < 0) continue;
      const std::ptrdiff_t from = StartOf(rows[i], line) + at;
      sign[i] = __ldg(signs + from);
      if (two_planes) magnitude[i] = __ldg(magnitudes + from);
    }
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      if (rows[i] >= 0) sums[i] += Compare(sign[i], magnitude[i], input, at, line, p.slices);
    }
  }
#pragma unroll
  for (int i = 0; i < kRows; ++i) sums[i] = __reduce_add_sync(kAllLanes, sums[i]);
}

template <bool two_planes>
__global__ void __launch_bounds__(kListThreads, 6)
    SignPredictKernel(DeviceSignPredictParams p, bool staged) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int words = SignInputWords(p.planes.cols, p.slices) / 2;  // units of 16 bytes per token
  const auto* input = reinterpret_cast<const uint4*>(p.words);
  if (staged) {
    auto* shared = ptx::DynamicShared<uint4>();
    for (int i = threadIdx.x; i < words * p.tokens; i += kListThreads) shared[i] = input[i];
    __syncthreads();
    input = shared;
  }
  const int shift = p.shift != nullptr ? *p.shift : 0;
  for (int first = (blockIdx.x * kWarps + warp) * kRows; first < p.neurons;
       first += gridDim.x * kWarps * kRows) {
    int rows[kRows];
    unsigned masks[kRows] = {};
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int id = first + i, slot = id >= p.neurons ? -1 : p.slots != nullptr ? p.slots[id] : id;
      rows[i] = slot >= 0 && !p.planes_by_slot ? id : slot;
    }
    for (int t = 0; t < p.tokens; ++t) {
      int sums[kRows];
      ScoreRows<two_planes>(p, rows, input + t * words, lane, sums);
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        if (rows[i] < 0) continue;
        // The shift is subtracted from the score, which is small. A threshold may be INT_MAX, and
        // adding the shift to it could overflow.
        const int score = p.totals[t] - 2 * sums[i] - shift;
        masks[i] |= (score >= p.thresholds[first + i] ? 1U : 0U) << t;
      }
    }
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      if (lane == i && first + i < p.neurons)
        p.out.masks[first + i] = static_cast<std::uint16_t>(masks[i]);
    }
  }
  EndWithList(p.out, nullptr, p.neurons);
}

__global__ void __launch_bounds__(kListThreads) LogitPredictKernel(DeviceLogitPredictParams p) {
  const int id = blockIdx.x * blockDim.x + threadIdx.x;
  const float least = p.threshold + (p.shift != nullptr ? *p.shift : 0.0F);
  if (id < p.neurons) {
    const int slot = p.slots != nullptr ? p.slots[id] : id;
    unsigned mask = slot >= 0 ? (1U << p.tokens) - 1 : 0;
    if (p.logits != nullptr && slot >= 0) {
      const float* logits = p.logits + (p.logits_by_slot ? slot : id);
      mask = 0;
      for (int t = 0; t < p.tokens; ++t)
        mask |= (logits[StartOf(t, p.logits_stride)] >= least ? 1U : 0U) << t;
    }
    p.out.masks[id] = static_cast<std::uint16_t>(mask);
  }
  EndWithList(p.out, nullptr, p.neurons);
}

}  // namespace

DeviceError PackSignInputs(const DevicePackSignParams& p, Stream stream) {
  return Launch(PackSignInputKernel, dim3(p.tokens), dim3(kPackThreads), 0, stream, p);
}

DeviceError SignPredict(const DeviceSignPredictParams& p, Stream stream) {
  constexpr int kBlocksPerMultiprocessor = 12;
  const std::size_t bytes =
      sizeof(std::uint64_t) * p.tokens * SignInputWords(p.planes.cols, p.slices);
  const bool staged = bytes <= kStaticShared;
  const int all = (p.neurons + kWarps * kRows - 1) / (kWarps * kRows),
            most = kBlocksPerMultiprocessor * Multiprocessors();
  const dim3 grid(all < most ? all : most), block(kListThreads);
  const auto kernel =
      p.planes.magnitude != nullptr ? SignPredictKernel<true> : SignPredictKernel<false>;
  return Launch(kernel, grid, block, staged ? bytes : 0, stream, p, staged);
}

DeviceError LogitPredict(const DeviceLogitPredictParams& p, Stream stream) {
  const dim3 grid((p.neurons + kListThreads - 1) / kListThreads);
  return Launch(LogitPredictKernel, grid, dim3(kListThreads), 0, stream, p);
}

}  // namespace thermocline::kernels::THERMOCLINE_CUDA
