// The folder of the prefix cache on flash, which files of several models share.
#pragma once

#include <cstdint>
#include <string>

#include "engine/base/status.h"

namespace thermocline::prefix {

// Makes the folder, which only its owner may enter, with its parents. Errors as base::ErrnoStatus;
// InvalidArgument: a file has its name.
Status MakeFolder(const std::string& folder);

// The bytes that the files called `own` may have, so that the folder stays within `bytes_max`.
// Files of other models are removed, the least recently written first, until they have no more than
// half of it; those that another process holds stay.
Result<std::uint64_t> RoomInFolder(const std::string& folder, const std::string& own,
                                   std::int64_t bytes_max);

}  // namespace thermocline::prefix
