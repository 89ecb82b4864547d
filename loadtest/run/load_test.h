// A whole invocation: the client, the questions before, the runs, what the server says afterwards.
#pragma once

#include "loadtest/report/run_report.h"

namespace thermocline::loadtest {

// Unavailable: the server cannot be reached; else what is wrong with files and options. What the
// server does wrong later is in the report.
Result<RunReport> RunLoadTest(const LoadOptions& options);

}  // namespace thermocline::loadtest
