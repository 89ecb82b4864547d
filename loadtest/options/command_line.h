// The command line of `thermocline-load`.
#pragma once

#include "loadtest/options/options.h"

namespace thermocline::loadtest {

inline constexpr int kExitDone = 0, kExitFailed = 1, kExitUsage = 2;

// The options, or the exit status where there is nothing to run: help was printed, or what is
// wrong. Files that options name are read.
struct ParsedLine {
  LoadOptions options = {};
  std::optional<int> exit = {};
};
ParsedLine ParseCommandLine(int argc, char** argv);

}  // namespace thermocline::loadtest
