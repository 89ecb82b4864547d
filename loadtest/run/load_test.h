// A complete invocation: the client, the probes, the runs, and the server's metrics afterwards.
#pragma once

#include "loadtest/report/run_report.h"

namespace thermocline::loadtest {

// Unavailable: the server cannot be reached; other errors are about files and options. Later faults
// of the server are in the report.
Result<RunReport> RunLoadTest(const LoadOptions& options);

}  // namespace thermocline::loadtest
