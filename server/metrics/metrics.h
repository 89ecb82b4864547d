// The metrics that Prometheus scrapes. They are written on I/O threads and read without the
// engine's thread. Their names are in table.cc.
#pragma once

#include <prometheus/metric_family.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "server/metrics/sensor_poller.h"
#include "server/metrics/table.h"

namespace thermocline::server {

enum class ServiceState { kLoading, kReady, kSleeping, kDraining, kFailed };
const char* ServiceStateName(ServiceState state);

// Thread-safe.
class Metrics {
 public:
  // Every metric's name begins with `prefix`. Without `sensors` there are no metrics of the
  // machine.
  explicit Metrics(const std::string& prefix, const MetricBuckets& buckets = {},
                   std::unique_ptr<const SensorPoller> sensors = nullptr);
  ~Metrics();

  void RequestEnded(const std::string& route, int http_status);
  void AccessLoosened();
  void FieldIgnored(const std::string& route, const std::string& field);
  void TokensReplayed(int tokens);  // of remembered answers, in one prompt
  // An answer with so many tokens of reasoning ended; `cut`: they reached its budget.
  void Reasoned(int tokens, bool cut);
  void PrefixBroken(const std::string& where);  // a prompt differs there from a cached one
  void ToolCalls(const std::string& form, int calls);
  void ToolCallRejected(const std::string& rule);
  void RequestRejected(const std::string& reason);
  // `seconds`: from the cancellation until the engine stopped the request.
  void RequestCancelled(Phase phase, CancelCause cause, double seconds);
  // Counts a generation that an internal error ended.
  void RequestFailed(const std::string& reason);
  void RequestFinished(FinishReason reason, const Usage& usage, double total_s);
  void FirstToken(double seconds);
  void InterToken(double seconds);
  void Tokenized(double seconds);

  // Energy of the whole machine between two times; nullopt if its sensors do not measure it.
  std::optional<double> Joules(std::chrono::steady_clock::time_point begin,
                               std::chrono::steady_clock::time_point end) const;

  // Removes what describes a loaded engine, whose totals begin anew with the next one. Requires: no
  // Expose meanwhile.
  void ForgetEngine();
  // As Expose, before it is written.
  std::vector<prometheus::MetricFamily> Collect(ServiceState state, const EngineStats* stats,
                                                const std::string& model_name,
                                                MetricReader reader = MetricReader::kOperator);
  // The text exposition, with gauges from `stats` (nullptr while loading). Does not affect other
  // scrapes.
  std::string Expose(ServiceState state, const EngineStats* stats, const std::string& model_name,
                     MetricReader reader = MetricReader::kOperator);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// One model's metrics and its name.
using MetricsOfModel = std::pair<std::string, std::vector<prometheus::MetricFamily>>;
// The text exposition. Of several models each series has a label "model", except for
// those of the process, which are taken from the first.
std::string ExposeTogether(std::vector<MetricsOfModel> models);

}  // namespace thermocline::server
