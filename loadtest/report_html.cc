#include "loadtest/run_report.h"
namespace thermocline::loadtest {
std::string ReportHtml(const RunReport&) { return ""; }
}  // namespace thermocline::loadtest
