// What the HTTP side serves: the engine once it is loaded, its names, its state.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include "engine/chat.h"
#include "engine/engine.h"
#include "server/metrics/metrics.h"
#include "server/server_config.h"

namespace thermocline::server {

// Thread-safe. Listening begins before the model is there, so that "loading" can be told.
class Service {
 public:
  explicit Service(const ServerConfig& config);

  // Loads the model (takes seconds). After an error the state is kFailed.
  Status Load();
  // From now on new work is refused with 503.
  void BeginDrain();
  // Cancels every generation; their clients are told.
  void CutOff();
  // Ends the engine. Requires: no thread serves requests any more.
  void StopEngine();

  ServiceState state() const { return state_.load(); }
  double load_progress() const { return load_progress_.load(); }
  const ServerConfig& config() const { return config_; }
  const std::string& model_name() const { return model_name_; }
  std::int64_t started_at() const { return started_at_; }  // Unix time
  Metrics& metrics() { return metrics_; }

  // The engine and its chat template; nullptr while loading. Never taken back before destruction.
  Engine* engine() const { return published_.load() ? engine_.get() : nullptr; }
  const ChatFormatter* chat() const { return published_.load() ? chat_.get() : nullptr; }

  // The engine met something that only a new process can mend; the daemon drains.
  bool failed() const { return failed_.load(); }

  // Whole seconds after which a refused client may try again, 1 to 120: queue length times a
  // request's usual time.
  int RetryAfterSeconds() const;
  void RequestTook(double seconds);

  // Requests whose first byte is there and whose answer is not wholly written yet.
  std::atomic<int> active_requests{0};

 private:
  const ServerConfig config_;
  std::string model_name_;
  std::int64_t started_at_;
  Metrics metrics_;
  std::unique_ptr<Engine> engine_;       // written once, before published_
  std::unique_ptr<ChatFormatter> chat_;  // likewise; nullptr if the model has no template
  std::atomic<bool> published_{false};
  std::atomic<bool> failed_{false};
  std::atomic<ServiceState> state_{ServiceState::kLoading};
  std::atomic<double> load_progress_{0};
  std::atomic<double> request_s_{1};  // decaying mean of a request's time
};

}  // namespace thermocline::server
