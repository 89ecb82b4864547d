#include "server/metrics/metric_tables.h"

#include "engine/base/strings.h"
#include "server/metrics/table.h"

namespace thermocline::server {
namespace {

const char* TypeName(MetricType type) {
  return type == MetricType::kCounter ? "counter"
         : type == MetricType::kGauge ? "gauge"
                                      : "histogram";
}

const char* WhenName(MetricWhen when) {
  switch (when) {
    case MetricWhen::kAlways:
      return "always";
    case MetricWhen::kUsed:
      return "used";
    case MetricWhen::kLoaded:
      return "loaded";
    case MetricWhen::kPredicted:
      return "predicted";
    case MetricWhen::kControlled:
      return "controlled";
    case MetricWhen::kInputs:
      return "inputs";
    case MetricWhen::kFlash:
      return "flash";
    case MetricWhen::kPrefixFlash:
      return "prefix cache on flash";
    case MetricWhen::kHot:
      return "hot";
    case MetricWhen::kExperts:
      return "experts";
    case MetricWhen::kDrafts:
      return "drafts";
    case MetricWhen::kSensors:
      break;
  }
  return "sensors";
}

// `text`, with '|' escaped, which would end the cell.
std::string Cell(std::string_view text) {
  std::string out;
  for (const char c : text) out += c == '|' ? "\\|" : std::string(1, c);
  return out;
}

}  // namespace

std::string MetricTables() {
  std::string out;
  std::string_view part;
  for (const MetricInfo& info : MetricTable()) {
    if (part != info.part) {
      part = info.part;
      out +=
          StrCat(out.empty() ? "" : "\n", "## ", part,
                 "\n\n| metric | type | labels | unit | appears | meaning |\n|---|---|---|---|---"
                 "|---|\n");
    }
    out += StrCat("| `", FullMetricName(info, "thermocline_"), "` | ", TypeName(info.type), " | ",
                  info.labels, " | ", info.unit, " | ", WhenName(info.when), " | ", Cell(info.help),
                  " |\n");
  }
  return out;
}

}  // namespace thermocline::server
