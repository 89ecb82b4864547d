// The ways to read a model's file while it loads: through the page cache, or bypassing it.
#pragma once

#include <string>

#include "engine/api/model_options.h"
#include "engine/model/model_file.h"

namespace thermocline::load {

// Sets how `file` is read. kAuto: bypasses the page cache if a GPU shares the host's memory
// (`unified`), or if file and weights would not fit beside each other; otherwise uses it, so that
// the next start finds the file there. Returns "direct", "dropped" (read through the cache and
// dropped from it at once, if the file system has no direct reads) or "cached".
std::string ConfigureFileReading(FileReading asked, bool unified, model::ModelFile& file);

}  // namespace thermocline::load
