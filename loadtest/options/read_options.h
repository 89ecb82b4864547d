// Reads the options of a command line by the table, and checks them against each other.
#pragma once

#include <map>
#include <string>

#include "loadtest/options/options.h"

namespace thermocline::loadtest {

// The texts of the given options, by the table's names ("--rate"); for flags, any text.
using GivenOptions = std::map<std::string, std::string>;

// InvalidArgument names the option at fault or, if two contradict each other, both. Reads the files
// that options name.
Result<LoadOptions> ReadOptions(const GivenOptions& given);

}  // namespace thermocline::loadtest
