// Reads files of one JSON value per line: traces and data sets.
#pragma once

#include <functional>
#include <string>

#include "engine/base/json.h"

namespace thermocline::loadtest {

// Calls `read` with each line that is not empty. InvalidArgument names the file and the line that
// is not JSON or that `read` rejects; a file without lines is an error, too.
Status ReadJsonLines(const std::string& path, const std::function<Status(const Json&)>& read);

}  // namespace thermocline::loadtest
