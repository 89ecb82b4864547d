// The device that a file lies on, as far as the system reports it.
#pragma once

#include <string>

#include "engine/base/status.h"

namespace thermocline::store {

struct DeviceName {
  std::string key;       // constant as long as it is the same device
  std::string readable;  // "nvme0n1 (Samsung SSD 980, 259:0)"
};
// Errors as base::OpenFile.
Result<DeviceName> DeviceOf(const std::string& path);

}  // namespace thermocline::store
