// The metrics that Prometheus scrapes. Written on the I/O side, read without touching the engine's
// thread. The names are in table.cc.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "engine/engine.h"
#include "server/metrics/sensor_poller.h"
#include "server/metrics/table.h"

namespace thermocline::server {

enum class ServiceState { kLoading, kReady, kDraining, kFailed };
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
  void ToolCalls(const std::string& form, int calls);
  void ToolCallRejected(const std::string& rule);
  void RequestRejected(const std::string& reason);
  // `seconds`: from the cancellation until the engine let go.
  void RequestCancelled(Phase phase, CancelCause cause, double seconds);
  // A generation that an error of ours ended.
  void RequestFailed(const std::string& reason);
  void RequestFinished(FinishReason reason, const Usage& usage, double total_s);
  void FirstToken(double seconds);
  void InterToken(double seconds);
  void Tokenized(double seconds);

  // Energy that the whole machine took in that time; nullopt: its sensors do not say.
  std::optional<double> Joules(std::chrono::steady_clock::time_point begin,
                               std::chrono::steady_clock::time_point end) const;

  // The text exposition, with gauges from `stats` (nullptr while loading). Changes nothing that
  // another scrape sees.
  std::string Expose(ServiceState state, const EngineStats* stats, const std::string& model_name,
                     MetricReader reader = MetricReader::kOperator);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace thermocline::server
