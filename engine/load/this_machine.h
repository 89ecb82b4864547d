// The machine this process runs on, as seen by placement for one model.
#pragma once

#include <cstdint>
#include <string>

#include "engine/api/hot_tier.h"
#include "engine/device/device.h"
#include "engine/model/model_file.h"
#include "engine/placement/machine.h"
#include "kernels/op_table.h"

namespace thermocline::load {

// Kernel threads of both sides if the hot one is a partition of the CPU.
struct SideThreads {
  int cold, hot;
};
// InvalidArgument: fewer than one for each side. `asked` = 0: half of all.
Result<SideThreads> ShareThreads(int all, int asked);

struct ThisMachineOptions {
  const kernels::OpTable* ops = nullptr;
  int threads = 1;  // of both sides
  HotOptions hot = {};
  device::Device* device = nullptr;            // the hot side; null: a second partition of the CPU
  bool flash = false;                          // also measure the device that the model lies on
  std::size_t measuring_bytes_max = SIZE_MAX;  // memory limit for the measured weights
};

// Adapts `machine` to a mixture: its experts on a GPU have no layer's attention beside them, and
// with shared memory the CPU computes all of them.
void ScaleToExperts(placement::Machine& machine);

// Measured, or cached from an earlier call (load/calibration.h, store/device_probe.h), with
// `hot.bytes` for the hot side (for a device at most its free memory, and all of that if 0) and as
// RAM the memory that the system allows this process. Errors as model::MeasureWeights,
// ShareThreads, CpuMachine, WithDevice. For a mixture a dense network as large as the experts of
// one token is measured.
Result<placement::Machine> ThisMachine(const model::ModelFile& file, const std::string& model_hash,
                                       const ThisMachineOptions& options);

}  // namespace thermocline::load
