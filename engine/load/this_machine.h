// The machine this process runs on, as placement sees it for one model.
#pragma once

#include <cstdint>
#include <string>

#include "engine/api/hot_tier.h"
#include "engine/device/device.h"
#include "engine/model/model_file.h"
#include "engine/placement/machine.h"
#include "kernels/op_table.h"

namespace thermocline::load {

// Kernel threads of either side where the hot one is a partition of the CPU.
struct SideThreads {
  int cold, hot;
};
// InvalidArgument: not one for each side. `asked` = 0: half of all.
Result<SideThreads> ShareThreads(int all, int asked);

struct ThisMachineOptions {
  const kernels::OpTable* ops = nullptr;
  int threads = 1;  // of both sides
  HotOptions hot = {};
  device::Device* device = nullptr;            // the hot side; null: a second partition of the CPU
  bool flash = false;                          // measure what the model lies on, too
  std::size_t measuring_bytes_max = SIZE_MAX;  // memory for the weights that are measured with
};

// A mixture's experts on a GPU have no layer's attention beside them; where there is one memory,
// the CPU computes them all.
void AsForExperts(placement::Machine& machine);

// Measured, or remembered from an earlier call (load/calibration.h, store/device_probe.h), with
// `hot.bytes` for the hot side (of a device at most what it has free, and all of it if 0) and what
// the system allows this process as RAM. Errors as model::MeasureWeights, ShareThreads, CpuMachine,
// WithDevice. For a mixture what is measured is a dense network as large as the experts of a token.
Result<placement::Machine> ThisMachine(const model::ModelFile& file, const std::string& model_hash,
                                       const ThisMachineOptions& options);

}  // namespace thermocline::load
