// The ways to read a model's file while it loads: through the page cache, or around it.
#pragma once

#include <string>

#include "engine/api/model_options.h"
#include "engine/model/model_file.h"

namespace thermocline::load {

// Makes `file` be read as asked. kAuto: around the page cache where a GPU shares the host's memory
// (`unified`), and where file and weights would not fit beside each other; else through it, so that
// the next start finds the file there. Returns "direct", "dropped" (through it, and dropped from it
// at once, where the file system has no direct reads) or "cached".
std::string SetReading(FileReading asked, bool unified, model::ModelFile& file);

}  // namespace thermocline::load
