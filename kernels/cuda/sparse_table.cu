// The table of the sparse ops, and what their launches share.
#include "kernels/cuda/rows_epilogue.h"
#include "kernels/cuda/sparse_ops.h"
#include "kernels/cuda/tables.h"

namespace thermocline::kernels::THERMOCLINE_CUDA {
namespace {

// Up to as many tokens gemm_rows.cu takes: it fills a device with the few rows of a decoded step,
// where tiles of 32 rows would leave most of it idle.
constexpr int kDecodeTokensMax = 8;

DeviceError GemmRowsOf(const DeviceGemmRowsParams& p, Stream stream) {
  if (!Traits(p.weights.type).quantized) return GemmFloatRows(p, stream);
  return p.tokens > kDecodeTokensMax && TilesFit(p.weights) ? GemmQuantizedRowTiles(p, stream)
                                                            : GemmQuantizedRows(p, stream);
}

DeviceError SumRowsOf(const DeviceSumRowsParams& p, Stream stream) {
  return Traits(p.weights.type).quantized ? SumQuantizedRows(p, stream) : SumFloatRows(p, stream);
}

DeviceError DownRowsOf(const DeviceDownRowsParams& p, Stream stream) {
  return Traits(p.sum.weights.type).quantized ? DownQuantizedRows(p, stream)
                                              : DownRowsOfFloats(p, stream);
}

}  // namespace

int Multiprocessors() {
  int device = 0, count = 0;
  if (cudaGetDevice(&device) != cudaSuccess ||
      cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device) != cudaSuccess)
    return 1;
  return count;
}

int RowsGrid(int rows, int warps) {
  constexpr int kBlocksPerMultiprocessor = 8;
  const int most = kBlocksPerMultiprocessor * Multiprocessors(), all = (rows + warps - 1) / warps;
  return all < 1 ? 1 : all < most ? all : most;
}

SparseOps SparseTable() {
  SparseOps table = {};
  table.pack_sign_input = PackSignInputs;
  table.sign_predict = SignPredict;
  table.logit_predict = LogitPredict;
  table.gemm_rows = GemmRowsOf;
  table.max_rows = MaxRows;
  table.sum_rows = SumRowsOf;
  table.finish_sum = FinishSum;
  table.down_rows = DownRowsOf;
  table.advance = Advance;
  table.publish = Publish;
  table.wait = Wait;
  return table;
}

}  // namespace thermocline::kernels::THERMOCLINE_CUDA
