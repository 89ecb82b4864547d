// Identifies the model in a file, so that side-cars can be matched to it.
#pragma once

#include <string>

#include "engine/model/model_file.h"

namespace thermocline::model {

// Returns 32 hex digits: XXH3-128 over the configuration's shapes and, of every tensor, its name,
// type, shape, and the first and last 4 KiB as they are read. Path and vocabulary are not included.
// Reads 8 KiB of a tensor, so it takes milliseconds whatever the size. Errors as reading.
Result<std::string> Fingerprint(const ModelFile& file);

}  // namespace thermocline::model
