// Files of one JSON value a line: traces and data sets.
#pragma once

#include <functional>
#include <string>

#include "engine/base/json.h"

namespace thermocline::loadtest {

// Calls `read` with each line that is not empty. InvalidArgument names the file and the line that
// is no JSON or that `read` refuses; also a file without lines.
Status ReadJsonLines(const std::string& path, const std::function<Status(const Json&)>& read);

}  // namespace thermocline::loadtest
