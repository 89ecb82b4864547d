// Launchers of the sparse ops (kernels/device_sparse.h), by file.
#pragma once

#include <type_traits>

#include "kernels/cuda/launch.h"
#include "kernels/device_sparse.h"

namespace thermocline::kernels::THERMOCLINE_CUDA {

int Multiprocessors();  // of the calling thread's device; 1 if the query fails

DeviceError PackSignInputs(const DevicePackSignParams& p, Stream stream);
DeviceError SignPredict(const DeviceSignPredictParams& p, Stream stream);
DeviceError LogitPredict(const DeviceLogitPredictParams& p, Stream stream);
DeviceError MaxRows(const DeviceSumRowsParams& p, Stream stream);
DeviceError SumQuantizedRows(const DeviceSumRowsParams& p, Stream stream);
DeviceError SumFloatRows(const DeviceSumRowsParams& p, Stream stream);
DeviceError DownQuantizedRows(const DeviceDownRowsParams& p, Stream stream);
DeviceError DownRowsOfFloats(const DeviceDownRowsParams& p, Stream stream);
// The same for many tokens; down_rows without its last step. Requires: TilesFit (row_tile.h).
DeviceError MaxRowTiles(const DeviceSumRowsParams& p, Stream stream);
DeviceError SumRowTiles(const DeviceSumRowsParams& p, Stream stream);
DeviceError MaxAndSumRowTiles(const DeviceSumRowsParams& p, Stream stream);
DeviceError FinishSum(const DeviceFinishSumParams& p, Stream stream);
DeviceError Advance(std::uint32_t* epoch, Stream stream);
DeviceError Publish(const DevicePublishParams& p, Stream stream);
DeviceError Wait(const DeviceWaitParams& p, Stream stream);

}  // namespace thermocline::kernels::THERMOCLINE_CUDA
