// The down projection for float types, and its last step for all types.
//
// Floats: a block has a run of 1,024 neurons, one token and 64 columns; four slices of the rows are
// added in their order, then to each other in theirs.
#include "kernels/cuda/finish_sum.h"
#include "kernels/cuda/float_weights.h"
#include "kernels/cuda/neuron_set.h"
#include "kernels/cuda/sparse_ops.h"

namespace thermocline::kernels::THERMOCLINE_CUDA {
namespace {

constexpr int kColumns = 64, kSlices = 4;

template <DType type>
__device__ void SumFloatRun(const DeviceSumRowsParams& p) {
  __shared__ float slices[kSlices][kColumns];
  const int run = blockIdx.y, token = blockIdx.z;
  const int column = threadIdx.x % kColumns, slice = threadIdx.x / kColumns,
            c = blockIdx.x * kColumns + column;
  const int end = p.neurons.starts[run + 1];
  float sum = 0;
#pragma unroll 4
  for (int k = p.neurons.starts[run] + slice; k < end && c < p.weights.cols; k += kSlices) {
    const int id = p.neurons.ids[k], slot = p.weights.slots != nullptr ? p.weights.slots[id] : id;
    const std::uint8_t* row = p.weights.data + slot * SizesOf<type>::RowBytes(p.weights.cols);
    sum = fmaf(p.h[StartOf(token, p.h_stride) + id], LoadFloat<type>(row, c), sum);
  }
  slices[slice][column] = sum;
  __syncthreads();
  if (slice != 0 || c >= p.weights.cols) return;
  for (int i = 1; i < kSlices; ++i) sum += slices[i][column];
  p.sums[(StartOf(token, gridDim.y) + run) * p.weights.cols + c] = sum;
}

template <DType type>
__global__ void __launch_bounds__(kColumns* kSlices) SumOfFloatRows(DeviceSumRowsParams p) {
  SumFloatRun<type>(p);
}

template <DType type>
__global__ void __launch_bounds__(kColumns* kSlices) DownFloatRows(DeviceDownRowsParams p) {
  SumFloatRun<type>(p.sum);
  const int token = blockIdx.z;
  if (!IsLastOf(gridDim.y, p.tickets + token * gridDim.x + blockIdx.x)) return;
  const int c = blockIdx.x * kColumns + threadIdx.x;
  if (threadIdx.x < kColumns && c < p.finish.cols) FinishColumn<true>(p.finish, token, c);
}

__global__ void Finish(DeviceFinishSumParams p) {
  const int c = blockIdx.x * blockDim.x + threadIdx.x, token = blockIdx.y;
  if (c >= p.cols) return;
  if (p.sums[0] != nullptr) {
    FinishColumn<true>(p, token, c);
  } else {
    FinishColumn<false>(p, token, c);
  }
}

dim3 GridOf(const DeviceSumRowsParams& p) {
  return dim3((p.weights.cols + kColumns - 1) / kColumns, NumSumRuns(p.weights.neurons), p.tokens);
}

// One of three kernels, by the type of `weights`.
template <typename Params>
DeviceError LaunchFloats(const DeviceSumRowsParams& sum, void (*f32)(Params), void (*f16)(Params),
                         void (*bf16)(Params), const Params& p, Stream stream) {
  const DType type = sum.weights.type;
  const auto kernel = type == DType::kF32 ? f32 : type == DType::kF16 ? f16 : bf16;
  return Launch(kernel, GridOf(sum), dim3(kColumns * kSlices), 0, stream, p);
}

}  // namespace

DeviceError SumFloatRows(const DeviceSumRowsParams& p, Stream stream) {
  return LaunchFloats(p, SumOfFloatRows<DType::kF32>, SumOfFloatRows<DType::kF16>,
                      SumOfFloatRows<DType::kBF16>, p, stream);
}

DeviceError DownRowsOfFloats(const DeviceDownRowsParams& p, Stream stream) {
  return LaunchFloats(p.sum, DownFloatRows<DType::kF32>, DownFloatRows<DType::kF16>,
                      DownFloatRows<DType::kBF16>, p, stream);
}

DeviceError FinishSum(const DeviceFinishSumParams& p, Stream stream) {
  constexpr int kThreads = 128;
  const dim3 grid((p.cols + kThreads - 1) / kThreads, p.tokens);
  return Launch(Finish, grid, dim3(kThreads), 0, stream, p);
}

}  // namespace thermocline::kernels::THERMOCLINE_CUDA
