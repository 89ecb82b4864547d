// What the system says, as a Status. For the files of engine/base that call it.
#pragma once

#include <string>

#include "engine/base/status.h"

namespace thermocline::base {

// "PATH: ACTION: why", with the code of errno `error`.
Status ErrnoStatus(const std::string& path, const char* action, int error);

// Makes a rename last: without it a crash may bring the old name back.
Status SyncFolderOf(const std::string& path);

}  // namespace thermocline::base
