// The one table of metrics: what is registered, what docs/metrics.md says, what tests look for.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace thermocline::server {

enum class MetricType { kCounter, kGauge, kHistogram };

// When a metric's series are there.
enum class MetricWhen {
  kAlways,
  kUsed,       // its labels' values have come up
  kLoaded,     // the model is loaded
  kPredicted,  // a layer has a predictor
  kControlled,
  kInputs,   // a token was decoded in mode inputs
  kFlash,    // memory does not hold all
  kHot,      // there is a hot tier
  kExperts,  // the model is a mixture of experts
  kDrafts,
  kSensors  // the machine has such sensors, and they can be read
};

// Which bucket borders a histogram has. Those of kStep and kBatch are not configured: the decode
// thread counts by them (engine/api/step_stats.h).
enum class Ladder { kNone, kFirstToken, kInterToken, kRequest, kTokens, kTokenize, kStep, kBatch };

struct MetricInfo {
  const char* name;  // behind the prefix; process_* are Prometheus' standard names and have none
  MetricType type;
  const char* labels;  // "a, b"; "" = none
  const char* unit;
  const char* part;  // of the daemon that it tells of
  MetricWhen when;
  const char* help;
  Ladder ladder = Ladder::kNone;
  const char* client_label = "";  // clients choose its values; only of a counter
};

// The value of a label instead of one that is not told.
inline constexpr const char* kOtherLabelValue = "other";

// An operator reads all series. A client reads the sums over client labels, whose values are
// kOtherLabelValue: other clients chose them.
enum class MetricReader { kOperator, kClient };

// In the order of the documentation: a part's metrics stand together.
std::span<const MetricInfo> MetricTable();

// "process_..." or the prefix and the name.
std::string FullMetricName(const MetricInfo& info, const std::string& prefix);

// Ascending upper borders in the unit of what is observed; empty = the ones below.
struct MetricBuckets {
  std::vector<double> first_token = {}, inter_token = {}, request = {}, tokens = {}, tokenize = {};
};
// Borders of a ladder: the configured ones, or else the ones it has by itself.
// Source: vLLM's, but for inter_token, which begins at a millisecond: a small model streams a token
// in less than vLLM's first bucket of 10 ms.
std::vector<double> BordersOf(Ladder ladder, const MetricBuckets& configured);

}  // namespace thermocline::server
