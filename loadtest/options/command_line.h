// The command line of `thermocline-load`.
#pragma once

#include "loadtest/options/options.h"

namespace thermocline::loadtest {

inline constexpr int kExitDone = 0, kExitFailed = 1, kExitUsage = 2;

// The options, or the exit status if there is no run because help or an error was printed. Files
// named by options are read.
struct ParsedLine {
  LoadOptions options = {};
  std::optional<int> exit = {};
};
ParsedLine ParseCommandLine(int argc, char** argv);

}  // namespace thermocline::loadtest
