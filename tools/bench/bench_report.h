// The reports of `bench`: a table or JSON, and ratios to an older report.
#pragma once

#include <string>

#include "engine/base/json.h"
#include "tools/bench/bench_measurement.h"

namespace thermocline::tools {

Json BenchReport(const load::LoadedModel& model, const BenchMeasurement& measurement);
// Prints to standard output.
void PrintBench(const load::LoadedModel& model, const BenchMeasurement& measurement);

// Ratios of the report `now` to an older one in the file `path`. A phase whose ranges overlap has
// not clearly changed. InvalidArgument: the file is no such report; errors of reading it.
Result<Json> BenchRatios(const std::string& path, const Json& now);
void PrintBenchRatios(const std::string& path, const Json& ratios);

}  // namespace thermocline::tools
