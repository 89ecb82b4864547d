#include "engine/api/speculation.h"

namespace thermocline {

const char* SpecModeName(SpecMode mode) {
  switch (mode) {
    case SpecMode::kOff:
      return "off";
    case SpecMode::kSync:
      return "sync";
    case SpecMode::kBranch:
      return "branch";
    case SpecMode::kExhaustive:
      return "exhaustive";
    case SpecMode::kAuto:
      break;
  }
  return "auto";
}

}  // namespace thermocline
