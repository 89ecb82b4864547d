// LoRA adapters as users name them.
#pragma once

#include <string>
#include <vector>

#include "engine/base/status.h"

namespace thermocline {

inline constexpr double kAdapterScaleMax = 1000;  // and its negative

// One of ModelOptions::lora.
struct AdapterChoice {
  std::string name = {}, path = {};
  float scale = 1;  // of requests that choose none
};

// "NAME=PATH:SCALE,PATH,..." without a name the file's or the folder's, without a scale 1.
// InvalidArgument: an empty path, a scale out of range, or a name that is there twice.
Result<std::vector<AdapterChoice>> ParseAdapters(const std::string& text);

}  // namespace thermocline
