// Which model a file holds: what side-cars are matched against.
#pragma once

#include <string>

#include "engine/model/model_file.h"

namespace thermocline::model {

// 32 hex digits: XXH3-128 over the configuration's shapes and, of every tensor, its name, type,
// shape, and the first and last 4 KiB as they are read. Neither the path nor the vocabulary counts.
// Reads 8 KiB of a tensor, so it takes milliseconds whatever the size. Fails as reading does.
Result<std::string> Fingerprint(const ModelFile& file);

}  // namespace thermocline::model
