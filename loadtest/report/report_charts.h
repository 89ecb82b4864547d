// The charts of the HTML page, as SVG in the page's colors (variables --c0, --c1, ... of its
// style).
#pragma once

#include <string>

#include "loadtest/report/run_report.h"

namespace thermocline::loadtest {

// Charts of a run over time and by percentile.
std::string RunCharts(const RunResult& run);

// Charts of throughput and latencies at each load of a sweep.
std::string SweepCharts(const std::vector<RunResult>& runs);

}  // namespace thermocline::loadtest
