// The metrics that Prometheus scrapes. They are written on I/O threads and read without the
// engine's thread. Their names are in table.cc.
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

  // The text exposition, with gauges from `stats` (nullptr while loading). Does not affect other
  // scrapes.
  std::string Expose(ServiceState state, const EngineStats* stats, const std::string& model_name,
                     MetricReader reader = MetricReader::kOperator);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace thermocline::server
