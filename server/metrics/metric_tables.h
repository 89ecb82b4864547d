// The tables of docs/metrics.md, which `thermoclined --metrics-doc` prints.
#pragma once

#include <string>

namespace thermocline::server {

// Markdown: a table for each part of the daemon, names with the default prefix.
std::string MetricTables();

}  // namespace thermocline::server
