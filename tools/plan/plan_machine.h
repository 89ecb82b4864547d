// The machine that `thermocline plan` plans for.
#pragma once

#include <cstdint>
#include <string>

#include "engine/api/model_options.h"
#include "engine/model/model_file.h"
#include "engine/placement/machine.h"
#include "tools/common/command_line.h"

namespace thermocline::tools {

struct MachineOptions {
  std::string machine;                         // name in config/machines, or path; "" = this one
  std::int64_t vram = -1, ram = -1;            // bytes; below 0: the machine's
  int threads = 0;                             // of this machine; 0 = all processors
  HotOptions hot = CommandLineDefaults().hot;  // of this machine
  double flash_mbps = -1, sync_us = -1;        // below 0: the machine's
};

// Adds --machine and the options that override its values.
void AddMachineOptions(const OptionSet& set, MachineOptions& options);

// The machine for `file`, which has this hash. NotFound names the available machines;
// InvalidArgument the file, the field or the option; for this machine errors as load::ThisMachine.
Result<placement::Machine> FindMachine(const MachineOptions& options, const model::ModelFile& file,
                                       const std::string& model_hash);

}  // namespace thermocline::tools
