// The checks of `thermocline doctor`. Each checks one thing and changes nothing.
#pragma once

#include "engine/base/status.h"
#include "tools/doctor/finding.h"

namespace thermocline::tools {

// Checks of the machine (machine_checks.cc).
Finding CheckProcessor(const MachineFiles& files);
Finding CheckMemory(const MachineFiles& files);
Finding CheckHugePages(const MachineFiles& files);
Finding CheckLockedMemory();
Finding CheckIoUring(const MachineFiles& files);
Finding CheckPowerMode(const MachineFiles& files);
Finding CheckTemperature(const MachineFiles& files);

// Checks of GPUs (gpu_checks.cc): Linux's device nodes, and access to a device.
bool IsJetson(const MachineFiles& files);
Finding CheckGpu(const MachineFiles& files);
Finding CheckGpuNodes(const MachineFiles& files);

// Checks of the user's files (file_checks.cc).
Finding CheckModel(const std::string& model);
// Reads the model's or bundle's file, or a temporary one beside it, for two seconds.
Finding CheckDisk(const std::string& model);
// Runs `thermoclined --check` from this program's folder.
Finding CheckConfig(const std::string& path);

}  // namespace thermocline::tools
