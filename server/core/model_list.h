// The models of one daemon by name, and those that left the list and still answer.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/mutex.h"
#include "server/core/service.h"

namespace thermocline::server {

// A request that waits for its model.
struct WaitingRequest {
  std::function<void(const Status&)> woken;  // called once: how the load ended
  std::function<bool()> gone = {};           // true once the client has left; may be empty
  std::string client = {};                   // a tenant
  std::optional<std::chrono::steady_clock::time_point> deadline = {};

  bool has_left() const { return gone && gone(); }
  bool is_late() const {
    return deadline.has_value() && std::chrono::steady_clock::now() >= *deadline;
  }
};

// A model and what its sleep depends on. Members behind `service` are guarded by ServedModels.
struct ServedModel {
  using Clock = std::chrono::steady_clock;

  ServedModel(std::shared_ptr<const ReloadableConfig> config,
              std::shared_ptr<ServiceThreads> threads)
      : service(std::move(config), std::move(threads)) {}

  Service service;
  bool pinned = false, found = false;  // as ModelEntry
  int keep_alive_default_s = -1, keep_alive_s = -1;
  int requests = 0, looks = 0;              // that hold it
  std::map<std::string, int> clients = {};  // the requests by tenant; only those that have some
  bool sleepy = false;                      // to be put to sleep when it is idle
  bool queued = false;
  int tried_at = -1;  // sleeps of models before the last try that found others busy; -1 = none
  Clock::time_point busy_since = {};  // the first of these tries
  std::int64_t bytes_needed = 0;      // by the plan of the last try; 0 = unknown
  std::int64_t budget = 0;            // of the last load
  Clock::time_point used_at = Clock::now();
  double load_s = 1;
  Status failure;    // of the last load
  int failures = 0;  // since the last that succeeded
  Clock::time_point failed_at = {};
  std::vector<WaitingRequest> waiting = {};

  // Adds a request of a client, or takes it away.
  void CountRequest(const std::string& client, int by) {
    requests += by;
    if ((clients[client] += by) == 0) clients.erase(client);
  }
  bool idle() const { return requests == 0 && looks == 0 && !queued; }
  bool loaded() const { return service.engine() != nullptr; }
  void Configure(bool is_pinned, int alive_s, bool was_found) {
    pinned = is_pinned;
    found = was_found;
    if (found) service.MustBeExamined();
    keep_alive_s = keep_alive_default_s = alive_s;
  }
  // The time at which it falls asleep if nobody uses it; nullopt = none.
  std::optional<Clock::time_point> Expiry() const;
  // Why it is to sleep now; nullptr: it is not, or cannot. `listed`: it is in the list.
  const char* WhyToSleep(bool listed) const;
  // True if its last load failed, and it is too early for another.
  bool FailedLately() const;
};

// Thread-safe. No other mutex is locked behind its own.
class ModelList {
 public:
  using Models = std::vector<std::shared_ptr<ServedModel>>;

  explicit ModelList(Models models) : list_(std::move(models)) {}

  // The models of the list, in its order.
  Models Listed() const EXCLUDES(mutex_);
  // The listed models, and those that have left the list.
  Models All() const EXCLUDES(mutex_);
  void Set(Models models) EXCLUDES(mutex_);
  bool Lists(const std::shared_ptr<ServedModel>& model) const EXCLUDES(mutex_);
  // All names and aliases that the client may use, those of the first model first.
  std::vector<std::string> Names(const ModelRights& rights) const;
  // The model of that name or alias; an alias "*" is asked last. "" is the first one. nullptr:
  // there is none that the client may use.
  std::shared_ptr<ServedModel> Find(const std::string& name, const ModelRights& rights) const;
  // Requires: the service is one of them.
  std::shared_ptr<ServedModel> Of(const Service& service) const;
  // Reads the facts of one listed model that need not be examined. False: all are known.
  bool ReadFactsOfOne() const;
  // The first listed model that wants to be examined; nullptr: none.
  std::shared_ptr<ServedModel> NextToExamine() const;
  // Destroys models that have left the list, once nobody uses them and they sleep.
  void ForgetUnused() EXCLUDES(mutex_);

 private:
  mutable base::Mutex mutex_;
  Models list_ GUARDED_BY(mutex_), left_ GUARDED_BY(mutex_);
};

}  // namespace thermocline::server
