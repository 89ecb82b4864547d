// The option --overwrite of the subcommands that write a model.
#pragma once

#include <string>

#include "tools/common/command_line.h"

namespace thermocline::tools {

void AddOverwriteOption(const OptionSet& set, bool& overwrite);

// OK if a model named `name` may be written to `out`: it replaces an earlier model of that name
// and, with `overwrite`, any regular file.
Status CheckModelOutput(const std::string& out, const std::string& name, bool overwrite);

}  // namespace thermocline::tools
