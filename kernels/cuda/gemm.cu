// The entry point of the matrix product: chooses the kernel for a type and number of tokens.
#include "kernels/cuda/dense.h"
#include "kernels/cuda/gemm_kernels.h"

namespace thermocline::kernels::THERMOCLINE_CUDA {
namespace {

constexpr int kThreads = 256;

__global__ void Fold(float* out, int rows, int stride, int half, const float* bias) {
  const int row = blockIdx.x * blockDim.x + threadIdx.x;
  const int token = blockIdx.y;
  if (row >= rows) return;
  float* to = out + StartOf(token, stride) + row;
  float sum = *to + to[StartOf(half, stride)];
  if (bias != nullptr) sum += bias[row];
  *to = sum;
}

DeviceError Multiply(const GemmArgs& args, DType type, Stream stream) {
  if (!Traits(type).quantized) return GemmFloat(type, args, stream);
  return args.x.tokens <= kTokenTile ? GemmFew(type, args, stream) : GemmMany(type, args, stream);
}

}  // namespace

DeviceError Gemm(const DeviceGemmParams& p, Stream stream) {
  const GemmParams& g = p.gemm;
  const Activations& x = g.activations;
  const GemmArgs args{
      .weights = g.weights.data,
      .panel_bytes = PanelBytes(g.weights.type, g.weights.cols),
      .x = {x.q, x.scale, x.scaled_sum, g.weights.cols, g.tokens},
      .floats = x.x,
      .out = {g.out, p.fold ? nullptr : p.bias, g.out_stride, g.weights.rows, p.accumulate}};
  const DeviceError error = Multiply(args, g.weights.type, stream);
  if (error != 0 || !p.fold) return error;
  const dim3 grid((g.weights.rows + kThreads - 1) / kThreads, g.tokens / 2);
  return Launch(Fold, grid, kThreads, 0, stream, g.out, g.weights.rows, g.out_stride, g.tokens / 2,
                p.bias);
}

}  // namespace thermocline::kernels::THERMOCLINE_CUDA
