// The options that a command line gives, read by the table and checked against each other.
#pragma once

#include <map>
#include <string>

#include "loadtest/options/options.h"

namespace thermocline::loadtest {

// The texts of the options that are given, by the table's names ("--rate"); of flags, any text.
using GivenOptions = std::map<std::string, std::string>;

// InvalidArgument names the option at fault and, of two that contradict each other, both. Files
// that options name are read.
Result<LoadOptions> ReadOptions(const GivenOptions& given);

}  // namespace thermocline::loadtest
