// The machine that `thermocline plan` plans for.
#pragma once

#include <string>

#include <CLI/CLI.hpp>

#include "engine/api/hot_tier.h"
#include "engine/model/model_file.h"
#include "engine/placement/machine.h"

namespace thermocline::tools {

struct MachineOptions {
  std::string machine;  // name in config/machines, or path; "" = this one
  std::string vram, ram;
  int threads = 0;                       // of this machine; 0 = all processors
  HotOptions hot = {.device = "auto"};   // of this machine
  double flash_mbps = -1, sync_us = -1;  // below 0: the machine's
};

// Adds --machine and what changes it.
void AddMachineOptions(CLI::App& app, MachineOptions& options);

// For `file`, of this hash. NotFound names the machines there are; InvalidArgument the file, the
// field or the option; for this machine errors as load::ThisMachine.
Result<placement::Machine> FindMachine(const MachineOptions& options, const model::ModelFile& file,
                                       const std::string& model_hash);

}  // namespace thermocline::tools
