// The checks of `thermocline doctor`. Each looks at one thing and changes nothing.
#pragma once

#include "engine/base/status.h"
#include "tools/doctor/finding.h"

namespace thermocline::tools {

// The machine (machine_checks.cc).
Finding CheckProcessor(const MachineFiles& files);
Finding CheckMemory(const MachineFiles& files);
Finding CheckHugePages(const MachineFiles& files);
Finding CheckLockedMemory();
Finding CheckIoUring(const MachineFiles& files);
Finding CheckPowerMode(const MachineFiles& files);
Finding CheckTemperature(const MachineFiles& files);

// GPUs (gpu_checks.cc): what of Linux's device nodes is there, and whether this program can open
// one.
bool IsJetson(const MachineFiles& files);
Finding CheckGpu(const MachineFiles& files);
Finding CheckGpuNodes(const MachineFiles& files);

// Files of the user's (file_checks.cc).
Finding CheckModel(const std::string& model);
// By reads of the model's or bundle's file, or of a temporary one beside it: two seconds.
Finding CheckDisk(const std::string& model);
// `thermoclined --check` of the same folder as this program.
Finding CheckConfig(const std::string& path);

}  // namespace thermocline::tools
