// Errors of the system as a Status.
#pragma once

#include <string>

#include "engine/base/status.h"

namespace thermocline::base {

// "PATH: ACTION: " and the text of `error`, an errno, with its code: NotFound, PermissionDenied,
// ResourceExhausted (the disk is full), otherwise Unavailable.
Status ErrnoStatus(const std::string& path, const char* action, int error);

// Makes a rename durable: without it a crash may restore the old name.
Status SyncFolderOf(const std::string& path);

}  // namespace thermocline::base
