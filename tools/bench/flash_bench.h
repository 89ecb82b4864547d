// `thermocline bench --flash`: the read speed of the model's storage device, by block size and
// queue depth.
#pragma once

#include <string>

#include "engine/base/status.h"

namespace thermocline::tools {

// `target` is a model, any file, or a folder; `plot` an SVG file to write, or "".
Status FlashBench(const std::string& target, const std::string& plot, bool json);

}  // namespace thermocline::tools
