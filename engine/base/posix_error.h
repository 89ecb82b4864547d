// Errors of the system as a Status.
#pragma once

#include <string>

#include "engine/base/status.h"

namespace thermocline::base {

// "PATH: ACTION: what `error`, an errno, means", with its code: NotFound, PermissionDenied,
// ResourceExhausted (the disk is full), else Unavailable.
Status ErrnoStatus(const std::string& path, const char* action, int error);

// Makes a rename last: without it a crash may bring the old name back.
Status SyncFolderOf(const std::string& path);

}  // namespace thermocline::base
