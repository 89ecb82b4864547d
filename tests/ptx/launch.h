// Runs one kernel of a module, all of its blocks, in a random order with several at once.
#pragma once

#include "tests/ptx/memory.h"
#include "tests/ptx/module.h"

namespace ptx {

struct LaunchParams {
  const Kernel& kernel;
  std::uint32_t blocks[3];
  std::uint32_t threads[3];
  std::uint32_t dynamic_shared_bytes = 0;
  std::vector<std::vector<std::uint8_t>> arguments;  // one per parameter
  std::uint64_t seed = 1;
  std::string where;  // for findings
};

// Throws Finding.
void Launch(const LaunchParams& params, const Allocations& memory);

}  // namespace ptx
