// The one table of metrics: they are registered from it, and docs/metrics.md and the tests use it.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace thermocline::server {

enum class MetricType { kCounter, kGauge, kHistogram };

// The condition under which a metric's series exist.
enum class MetricWhen {
  kAlways,
  kUsed,       // its labels' values have occurred
  kLoaded,     // the model is loaded
  kPredicted,  // a layer has a predictor
  kControlled,
  kInputs,       // a token was decoded in mode inputs
  kFlash,        // memory does not hold the whole model
  kPrefixFlash,  // prefix_cache.path is set
  kHot,          // there is a hot tier
  kExperts,      // the model is a mixture of experts
  kDrafts,
  kSensors  // the machine has such sensors, and they are readable
};

// A histogram's bucket borders. Those of kStep and kBatch are fixed, since the decode thread counts
// by them (engine/api/step_stats.h).
enum class Ladder { kNone, kFirstToken, kInterToken, kRequest, kTokens, kTokenize, kStep, kBatch };

struct MetricInfo {
  const char* name;  // without the prefix; process_* are Prometheus' standard names and get none
  MetricType type;
  const char* labels;  // "a, b"; "" = none
  const char* unit;
  const char* part;  // the part of the daemon that it describes
  MetricWhen when;
  const char* help;
  Ladder ladder = Ladder::kNone;
  const char* client_label = "";  // clients choose this label's values; counters only
};

// The value that replaces a label's hidden value.
inline constexpr const char* kOtherLabelValue = "other";

// An operator reads all series. A client reads sums over client labels, whose values become
// kOtherLabelValue because other clients chose them, and no series of single layers.
enum class MetricReader { kOperator, kClient };

// In the order of the documentation, grouped by part.
std::span<const MetricInfo> MetricTable();

// Its second part: the engine, the machine and the process.
std::span<const MetricInfo> EngineMetricTable();

// "process_...", or the prefix and the name.
std::string FullMetricName(const MetricInfo& info, const std::string& prefix);

// Ascending upper borders in the unit of the observed values; empty = the defaults.
struct MetricBuckets {
  std::vector<double> first_token = {}, inter_token = {}, request = {}, tokens = {}, tokenize = {};
};
// The borders of a ladder: the configured ones, else the defaults. Source: vLLM's, except for
// inter_token, which begins at one millisecond: a small model streams a token in less than vLLM's
// first bucket of 10 ms.
std::vector<double> BordersOf(Ladder ladder, const MetricBuckets& configured);

}  // namespace thermocline::server
