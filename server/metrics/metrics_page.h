// docs/metrics.md, as `thermoclined --metrics-doc` prints it.
#pragma once

#include <string>

namespace thermocline::server {

// Markdown: the table of metrics with the default prefix, and queries.
std::string MetricsPage();

}  // namespace thermocline::server
