// The table of the sparse ops, and helpers that their launches share.
#include "kernels/cuda/row_tile.h"
#include "kernels/cuda/rows_epilogue.h"
#include "kernels/cuda/sparse_ops.h"
#include "kernels/cuda/tables.h"

namespace thermocline::kernels::THERMOCLINE_CUDA {
namespace {

// Up to this many tokens the kernels of a decode step are used: they fill a device with few rows,
// where tiles of 32 rows would leave most of it idle. The sums' kernel reads a row for each token.
constexpr int kDecodeTokensMax = 8, kDecodeSumsMax = 4;

bool InTiles(const DeviceSumRowsParams& p) {
  return p.tokens > kDecodeSumsMax && Traits(p.weights.type).quantized && TilesFit(p.weights);
}

DeviceError GemmRowsOf(const DeviceGemmRowsParams& p, Stream stream) {
  if (!Traits(p.weights.type).quantized) return GemmFloatRows(p, stream);
  return p.tokens > kDecodeTokensMax && TilesFit(p.weights) ? GemmQuantizedRowTiles(p, stream)
                                                            : GemmQuantizedRows(p, stream);
}

DeviceError MaxRowsOf(const DeviceSumRowsParams& p, Stream stream) {
  return InTiles(p) ? MaxRowTiles(p, stream) : MaxRows(p, stream);
}

DeviceError SumRowsOf(const DeviceSumRowsParams& p, Stream stream) {
  if (!Traits(p.weights.type).quantized) return SumFloatRows(p, stream);
  return InTiles(p) ? SumRowTiles(p, stream) : SumQuantizedRows(p, stream);
}

DeviceError DownRowsOf(const DeviceDownRowsParams& p, Stream stream) {
  if (!Traits(p.sum.weights.type).quantized) return DownRowsOfFloats(p, stream);
  if (!InTiles(p.sum)) return DownQuantizedRows(p, stream);
  const DeviceError error = MaxAndSumRowTiles(p.sum, stream);
  return error != 0 ? error : FinishSum(p.finish, stream);
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
  table.max_rows = MaxRowsOf;
  table.sum_rows = SumRowsOf;
  table.finish_sum = FinishSum;
  table.down_rows = DownRowsOf;
  table.advance = Advance;
  table.publish = Publish;
  table.wait = Wait;
  return table;
}

}  // namespace thermocline::kernels::THERMOCLINE_CUDA
