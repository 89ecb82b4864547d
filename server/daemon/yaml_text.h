// Mistakes in a YAML text that the parser accepts, or tells in words of its own.
#pragma once

#include <string>

#include "engine/base/status.h"

namespace thermocline::server {

// InvalidArgument, with `path` and the line, if the text has more than one document. Throws
// YAML::Exception as the parser does.
Status CheckOneDocument(const std::string& text, const std::string& path);

// Words to follow the parser's error in that line, counted from 0; "" = none.
const char* HintOf(const std::string& text, int line);

}  // namespace thermocline::server
