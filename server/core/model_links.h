// Links in the folder of a model that nobody has named, such as a clone or an unpacked archive
// brings: its texts, of which clients see the chat template, must be its own.
#pragma once

#include <string>

#include "engine/base/status.h"

namespace thermocline::server {

// FailedPrecondition names a file of the folder, other than weights, that is a link to a place
// outside of it. The snapshots of a hub's cache link to the blobs of their repository. OK for a
// single file.
Status CheckLinks(const std::string& path);

}  // namespace thermocline::server
