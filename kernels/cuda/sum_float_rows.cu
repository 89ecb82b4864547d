// The down projection for float types, and its last step for all types.
//
// Floats: a block has a run of 1,024 neurons, one token and 64 columns; four slices of the rows are
// added in their order, then to each other in theirs.
#include "kernels/cuda/float_weights.h"
#include "kernels/cuda/sparse_ops.h"
#include "kernels/quantize.h"

namespace thermocline::kernels::THERMOCLINE_CUDA {
namespace {

constexpr int kColumns = 64, kSlices = 4;

template <DType type>
__global__ void __launch_bounds__(kColumns* kSlices) SumOfFloatRows(DeviceSumRowsParams p) {
  __shared__ float slices[kSlices][kColumns];
  const int run = static_cast<int>(blockIdx.y), token = static_cast<int>(blockIdx.z);
  const int column = static_cast<int>(threadIdx.x) % kColumns,
            slice = static_cast<int>(threadIdx.x) / kColumns,
            c = static_cast<int>(blockIdx.x) * kColumns + column;
  const int end = p.neurons.starts[run + 1];
  float sum = 0;
#pragma unroll 4
  for (int k = p.neurons.starts[run] + slice; k < end && c < p.weights.cols; k += kSlices) {
    const int id = p.neurons.ids[k], slot = p.weights.slots != nullptr ? p.weights.slots[id] : id;
    const std::uint8_t* row =
        p.weights.data + static_cast<std::size_t>(slot) * SizesOf<type>::RowBytes(p.weights.cols);
    sum = fmaf(p.h[static_cast<std::ptrdiff_t>(token) * p.h_stride + id], LoadFloat<type>(row, c),
               sum);
  }
  slices[slice][column] = sum;
  __syncthreads();
  if (slice != 0 || c >= p.weights.cols) return;
  for (int i = 1; i < kSlices; ++i) sum += slices[i][column];
  p.sums[(static_cast<std::ptrdiff_t>(token) * gridDim.y + run) * p.weights.cols + c] = sum;
}

constexpr int kParts = FinishSumParams::kPartsMax;

// One column of one token, of quantised types.
__device__ float FinishQuantized(const DeviceFinishSumParams& p, int token, int c) {
  const int runs = NumSumRuns(p.neurons), blocks = p.cols / 32;
  float y = 0;
  for (int run = 0; run < runs; ++run) {
    const std::ptrdiff_t row = static_cast<std::ptrdiff_t>(token) * runs + run;
    const std::ptrdiff_t number = row * blocks + c / 32, at = row * p.cols + c;
    float limit = p.limits[0][number];
    if (p.limits[1] != nullptr) limit = fmaxf(limit, p.limits[1][number]);
    if (limit > kActivationMin) {
      int high = 0, low = 0;
#pragma unroll  // so that the pointers stay parameters
      for (int i = 0; i < kParts; ++i) {
        if (i >= p.parts) break;
        high += p.high[i][at];
        low += p.low[i][at];
      }
      const float sum = fmaf(256.0F, static_cast<float>(high), static_cast<float>(low));
      y = fmaf(limit * (1.0F / kCoefficientMax), sum, y);
    }
#pragma unroll
    for (int i = 0; i < kParts; ++i) {
      if (i < p.parts && p.minimums[i] != nullptr) y += p.minimums[i][number];
    }
  }
  return y;
}

__device__ float FinishFloats(const DeviceFinishSumParams& p, int token, int c) {
  const int runs = NumSumRuns(p.neurons);
  float y = 0;
#pragma unroll
  for (int i = 0; i < kParts; ++i) {
    if (i >= p.parts) break;
    for (int run = 0; run < runs; ++run)
      y += p.sums[i][(static_cast<std::ptrdiff_t>(token) * runs + run) * p.cols + c];
  }
  return y;
}

__global__ void Finish(DeviceFinishSumParams p) {
  const int c = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x),
            token = static_cast<int>(blockIdx.y);
  if (c >= p.cols) return;
  float y = p.sums[0] != nullptr ? FinishFloats(p, token, c) : FinishQuantized(p, token, c);
  if (p.bias != nullptr) y += p.bias[c];
  float* out = p.out + static_cast<std::ptrdiff_t>(token) * p.out_stride + c;
  *out = p.accumulate ? *out + y : y;
}

}  // namespace

DeviceError SumFloatRows(const DeviceSumRowsParams& p, Stream stream) {
  const dim3 grid(static_cast<unsigned>((p.weights.cols + kColumns - 1) / kColumns),
                  static_cast<unsigned>(NumSumRuns(p.weights.neurons)),
                  static_cast<unsigned>(p.tokens)),
      block(kColumns * kSlices);
  switch (p.weights.type) {
    case DType::kF32:
      return Launch(SumOfFloatRows<DType::kF32>, grid, block, 0, stream, p);
    case DType::kF16:
      return Launch(SumOfFloatRows<DType::kF16>, grid, block, 0, stream, p);
    default:
      return Launch(SumOfFloatRows<DType::kBF16>, grid, block, 0, stream, p);
  }
}

DeviceError FinishSum(const DeviceFinishSumParams& p, Stream stream) {
  constexpr int kThreads = 128;
  const dim3 grid(static_cast<unsigned>((p.cols + kThreads - 1) / kThreads),
                  static_cast<unsigned>(p.tokens));
  return Launch(Finish, grid, dim3(kThreads), 0, stream, p);
}

}  // namespace thermocline::kernels::THERMOCLINE_CUDA
