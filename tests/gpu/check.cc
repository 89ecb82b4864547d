#include "tests/gpu/check.h"

#include <cstdio>
#include <cstdlib>

namespace thermocline::gpu {

void MustDo(const kernels::DeviceOps& ops, kernels::DeviceError error, const char* what) {
  if (error == 0) return;
  std::fprintf(stderr, "%s: %s: %s (error %d)\n", ops.runtime.name, what,
               ops.runtime.error_text(error), error);
  std::exit(1);
}

}  // namespace thermocline::gpu
