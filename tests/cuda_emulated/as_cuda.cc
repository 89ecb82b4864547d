// Replaces a GPU by the emulated device in whole programs: linked before the real kernels. With
// THERMOCLINE_EMULATED=unified the device shares the host's memory.
#include <cstdlib>
#include <string_view>

#include "tests/cuda_emulated/emulated_ops.h"
#include "tests/cuda_emulated/emulator.h"

namespace thermocline::kernels {

const DeviceOps* CudaOps() {
  const char* const kind = std::getenv("THERMOCLINE_EMULATED");
  if (kind != nullptr && std::string_view(kind) == "unified")
    cuda_emulated::SetMachine({.unified = true});
  return &EmulatedOps();
}

}  // namespace thermocline::kernels
