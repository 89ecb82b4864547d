// The models of one daemon: those that are loaded, those that sleep, and the requests that wait for
// one.
#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "engine/base/mutex.h"
#include "server/core/examiner.h"
#include "server/core/model_entries.h"
#include "server/core/model_list.h"
#include "server/core/parked_requests.h"
#include "server/core/requested_model.h"
#include "server/core/running_pulls.h"
#include "server/core/service.h"

namespace thermocline::server {

// Thread-safe. One thread loads models, one at a time, within the memory budget of the whole
// daemon: a model is planned for what the loaded ones leave. If it does not fit, idle models are
// put to sleep, first those that are idle long, hold much and load fast.
class ServedModels {
 public:
  using Clock = ServedModel::Clock;
  // The purpose of holding a model: only requests count as its use.
  enum class Purpose { kRequest, kLook };

  using Entry = ServedModelEntry;

  // One model without `models`. Errors as EntriesOf.
  static Result<std::unique_ptr<ServedModels>> Create(
      const std::shared_ptr<const ReloadableConfig>& reloadable);
  ~ServedModels();
  ServedModels(const ServedModels&) = delete;
  ServedModels& operator=(const ServedModels&) = delete;

  // The first model, whose configuration is the daemon's.
  Service& front() const { return first_->service; }
  // True if there is a list, which may change, even if it has one model.
  bool several() const { return several_; }
  // Takes up another list. New models may be asked for from now on; those that it lacks answer
  // what they have begun, and then fall asleep for good. Requires: CheckNames, and the first entry
  // keeps the first model.
  void SetList(const std::vector<Entry>& list);
  RunningPulls& pulls() { return pulls_; }
  // All names and aliases that the client may use, those of the first model first.
  std::vector<std::string> Names(const ModelRights& rights = {}) const {
    return models_.Names(rights);
  }

  // The model of that name or alias, which does not fall asleep while the result exists; nullptr:
  // there is none that the client may use. "" is the first model that it may; an alias "*" is asked
  // last.
  std::shared_ptr<Service> Hold(const std::string& name, Purpose purpose = Purpose::kRequest,
                                const ModelRights& rights = {}, const std::string& client = {});
  std::vector<std::shared_ptr<Service>> HoldAll(const ModelRights& rights = {});

  // Loads the first model, and begins to load those that are pinned. The first one's error,
  // unless it was merely found in a folder: the others are served without it.
  Status LoadFirst();
  // OK while requests are taken, whatever the models do; before LoadFirst, the first one's.
  Status Readiness() const;
  // Calls `waiting.woken` once, on any thread: OK when the held model is ready, else why it cannot
  // be loaded now. Requests that wait for one model share one load. A request of a model that is
  // held back waits until it is not. `purpose`: as for Hold.
  void Wake(const std::shared_ptr<Service>& held, WaitingRequest waiting,
            Purpose purpose = Purpose::kRequest);
  // True if a new request of the client has to wait, lest another model wait for ever.
  bool HeldBack(const Service& service, const std::string& client);
  // True if a model has waited for some seconds for busy ones.
  bool WaitsForBusy() const EXCLUDES(mutex_);
  // Seconds after the last request at which the model falls asleep; -1 = when memory is wanted;
  // nullopt = as configured. Does nothing for a pinned model, or one that is alone.
  void KeepAlive(const Service& service, std::optional<int> seconds);
  // The time at which the loaded model falls asleep if nobody uses it; nullopt = none.
  std::optional<Clock::time_point> ExpiresAt(const Service& service);
  // Puts a model to sleep as soon as it is idle, also a pinned one. False: it is alone.
  bool Sleep(const Service& service);

  // For a drain: every model rejects new work; nothing is loaded any more.
  void BeginDrain();
  void CancelGenerations() {
    for (const auto& model : models_.All()) model->service.CancelGenerations();
  }
  void StopEngines();
  void StopWorkers() { front().StopWorkers(); }

 private:
  using Model = ServedModel;

  ServedModels(const std::vector<Entry>& list, bool several);
  std::shared_ptr<Model> MakeModel(const Entry& entry);
  std::shared_ptr<Service> HoldModel(const std::shared_ptr<Model>& model, Purpose purpose,
                                     const std::string& client);
  void Release(Model& model, Purpose purpose, const std::string& client);
  // Runs on the loading thread.
  void Run();
  std::shared_ptr<Model> NextToLoad(std::chrono::seconds most) EXCLUDES(mutex_);
  // Tells those that wait for the model how its load ended.
  void EndWait(Model& model, const Status& loaded) EXCLUDES(mutex_);
  // nullopt: it does not fit beside models that answer, and is to be tried again later.
  std::optional<Status> Load(Model& model) EXCLUDES(mutex_);
  // Loads within what the other models leave, and puts idle ones to sleep while it does not fit.
  // `busy`: it does not fit beside models that answer.
  Status LoadWithin(Model& model, bool& busy);
  // Puts an idle model to sleep, if all of them together leave the bytes that are needed; false:
  // no. `busy`: other models may sleep later.
  bool MakeRoomFor(Model& model, std::int64_t needed, bool& busy) EXCLUDES(mutex_);
  std::shared_ptr<Model> NextToExamine() EXCLUDES(mutex_);
  void SleepExpired();
  // Gives up the answers that nobody reads while a model waits for busy ones.
  void GiveUpUnread() EXCLUDES(mutex_);
  // Loads a model that comes from flash again, once others have left it memory.
  void GrowOne() EXCLUDES(mutex_);
  // Lets requests go on whose models are not held back any more, and ends the waiting of those
  // whose clients have left or whose time is over.
  void LetGo() EXCLUDES(mutex_);
  // Lets no request and no load go on.
  void Stop() EXCLUDES(mutex_);
  void PutToSleep(Model& model, const char* why) REQUIRES(mutex_);

  const bool several_;
  std::atomic<bool> cancelled_{false};  // ends a load
  const std::shared_ptr<ServiceThreads> threads_;
  ModelList models_;
  const std::shared_ptr<Model> first_;
  mutable base::Mutex mutex_;
  base::Condition changed_;
  LoadQueue queue_ GUARDED_BY(mutex_);
  ParkedRequests parked_ GUARDED_BY(mutex_);
  int sleeps_ GUARDED_BY(mutex_) = 0;  // times that a model fell asleep
  bool sleep_asked_ GUARDED_BY(mutex_) = false;
  bool stops_ GUARDED_BY(mutex_) = false;
  std::atomic<bool> started_{false};
  RunningPulls pulls_;
  // These run only if there are several models.
  std::thread loader_;
  std::optional<Examiner> examiner_;
};

}  // namespace thermocline::server
