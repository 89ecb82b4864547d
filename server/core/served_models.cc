#include "server/core/served_models.h"

#include <pthread.h>

#include <algorithm>
#include <span>
#include <utility>

#include "engine/base/index.h"
#include "engine/base/log.h"
#include "engine/base/strings.h"
#include "server/core/load_failure.h"
#include "server/core/memory_share.h"
#include "server/core/sleep_choice.h"

namespace thermocline::server {
namespace {

constexpr std::chrono::seconds kLookInterval{1}, kNoWait{0};

}  // namespace

Result<std::unique_ptr<ServedModels>> ServedModels::Create(
    const std::shared_ptr<const ReloadableConfig>& reloadable) {
  ASSIGN_OR_RETURN(const std::vector<Entry> list, EntriesOf(reloadable));
  const bool several = !reloadable->config.models.empty();
  return std::unique_ptr<ServedModels>(new ServedModels(list, several));
}

ServedModels::ServedModels(const std::vector<Entry>& list, bool several)
    : several_(several),
      threads_(std::make_shared<ServiceThreads>(RequestSizesOf(list.front().config->config))),
      models_({MakeModel(list.front())}),
      first_(models_.Listed().front()) {
  ModelList::Models models = models_.Listed();
  for (const Entry& entry : std::span(list).subspan(1)) {
    models.push_back(MakeModel(entry));
    models.back()->service.Unpublish();
  }
  models_.Set(std::move(models));
}

ServedModels::~ServedModels() { StopEngines(); }

std::shared_ptr<ServedModel> ServedModels::MakeModel(const Entry& entry) {
  auto model = std::make_shared<Model>(entry.config, threads_);
  model->Configure(entry.pinned, entry.keep_alive_s, entry.found);
  model->service.SetModels(this);
  return model;
}

void ServedModels::SetList(const std::vector<Entry>& list) {
  ModelList::Models models;
  for (const Entry& entry : list) {
    models.push_back(entry.kept == nullptr ? MakeModel(entry) : models_.Of(*entry.kept));
    if (entry.kept == nullptr) models.back()->service.Unpublish();
  }
  // All of them are made before anything is changed, because memory may be lacking.
  models_.Set(models);
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (list[i].kept == nullptr) continue;
    list[i].kept->SetReloadable(list[i].config);
    const base::MutexLock lock(mutex_);
    models[i]->Configure(list[i].pinned, list[i].keep_alive_s, list[i].found);
  }
  const base::MutexLock lock(mutex_);
  changed_.NotifyAll();
}

std::shared_ptr<Service> ServedModels::Hold(const std::string& name, Purpose purpose,
                                            const ModelRights& rights, const std::string& client) {
  const std::shared_ptr<Model> model = models_.Find(several() ? name : "", rights);
  return model == nullptr ? nullptr : HoldModel(model, purpose, client);
}

std::shared_ptr<Service> ServedModels::HoldModel(const std::shared_ptr<Model>& model,
                                                 Purpose purpose, const std::string& client) {
  const base::MutexLock lock(mutex_);
  purpose == Purpose::kRequest ? model->CountRequest(client, 1) : void(++model->looks);
  return std::shared_ptr<Service>(&model->service, [this, model, purpose, client](Service*) {
    Release(*model, purpose, client);
  });
}

std::vector<std::shared_ptr<Service>> ServedModels::HoldAll(const ModelRights& rights) {
  std::vector<std::shared_ptr<Service>> held;
  for (const auto& model : models_.Listed())
    if (!model->service.model_names(rights).empty())
      held.push_back(HoldModel(model, Purpose::kLook, {}));
  return held;
}

void ServedModels::Release(Model& model, Purpose purpose, const std::string& client) {
  const base::MutexLock lock(mutex_);
  purpose == Purpose::kRequest ? model.CountRequest(client, -1) : void(--model.looks);
  if (purpose == Purpose::kRequest) model.used_at = Clock::now();
  if (model.idle()) changed_.NotifyAll();
}

Status ServedModels::LoadFirst() {
  if (first_->found) first_->service.Examine([this] { return cancelled_.load(); });
  Status first = *Load(*first_);
  if (!several()) return first;
  if (!first.ok() && !first_->found) {
    Stop();
    // Requests that wait for other models go on before their connections end.
    for (const auto& model : models_.All()) EndWait(*model, ShuttingDown());
    return first_->failure;
  }
  EndWait(*first_, first);
  started_ = true;
  for (const auto& model : models_.Listed()) {
    const base::MutexLock lock(mutex_);
    if (model->pinned && model != first_) queue_.Add(model);
  }
  loader_ = std::thread([this] { Run(); });
  ::pthread_setname_np(loader_.native_handle(), "models");
  const auto on_end = [this] {
    const base::MutexLock lock(mutex_);
    changed_.NotifyAll();
  };
  const auto next = [this] { return NextToExamine(); };
  const base::MutexLock lock(mutex_);
  examiner_.emplace(Examiner::Params{.next = next, .on_end = on_end, .cancelled = cancelled_});
  return OkStatus();
}

Status ServedModels::Readiness() const {
  if (!started_) return front().Readiness();
  const base::MutexLock lock(mutex_);
  return stops_ ? ShuttingDown() : OkStatus();
}

bool ServedModels::HeldBack(const Service& service, const std::string& client) {
  const std::shared_ptr<Model> model = models_.Of(service);
  const base::MutexLock lock(mutex_);
  return queue_.HoldsBack(*model, client, 1);
}

void ServedModels::Wake(const std::shared_ptr<Service>& held, WaitingRequest waiting,
                        Purpose purpose) {
  const std::shared_ptr<Model> found = models_.Of(*held);
  Model& model = *found;
  Status now = OkStatus();
  {
    const base::MutexLock lock(mutex_);
    if (stops_) {
      now = ShuttingDown();
    } else if (model.FailedLately()) {
      now = LoadFailure(model.service, model.failure);
    } else if (!model.loaded() || model.queued) {
      model.waiting.push_back(std::move(waiting));
      queue_.Add(found);
      changed_.NotifyAll();
      if (examiner_.has_value()) examiner_->Look();
      return;
    } else if (purpose == Purpose::kRequest && queue_.HoldsBack(model, waiting, 1)) {
      parked_.Add({found, held, std::move(waiting)});
      if (model.idle()) changed_.NotifyAll();
      return;
    }
  }
  waiting.woken(now);
}

void ServedModels::LetGo() {
  base::MutexLock lock(mutex_);
  const auto ended = queue_.TakeEnded();
  auto taken = parked_.Take(queue_, stops_);
  lock.Unlock();
  for (const WaitingRequest& each : ended)
    each.woken(each.has_left() ? ClientGone() : TimeIsOver());
  for (auto& each : taken) Wake(each.held, std::move(each.waiting));
}

void ServedModels::KeepAlive(const Service& service, std::optional<int> seconds_more) {
  if (!several()) return;
  const std::shared_ptr<Model> model = models_.Of(service);
  const base::MutexLock lock(mutex_);
  const int wanted = seconds_more.value_or(model->keep_alive_default_s);
  if (std::exchange(model->keep_alive_s, wanted) != wanted) changed_.NotifyAll();
}

std::optional<ServedModels::Clock::time_point> ServedModels::ExpiresAt(const Service& service) {
  const std::shared_ptr<Model> model = models_.Of(service);
  const base::MutexLock lock(mutex_);
  return model->Expiry();
}

bool ServedModels::Sleep(const Service& service) {
  if (!several()) return false;
  const std::shared_ptr<Model> model = models_.Of(service);
  const base::MutexLock lock(mutex_);
  model->sleepy = sleep_asked_ = true;
  changed_.NotifyAll();
  return true;
}

void ServedModels::Run() {
  for (bool more = true;;) {  // facts to be read
    SleepExpired();
    GrowOne();
    GiveUpUnread();
    LetGo();
    models_.ForgetUnused();
    const std::shared_ptr<Model> next = NextToLoad(more ? kNoWait : kLookInterval);
    {
      const base::MutexLock lock(mutex_);
      if (stops_) break;
    }
    if (next == nullptr) {
      more = models_.ReadFactsOfOne();
      continue;
    }
    const std::optional<Status> loaded = Load(*next);
    if (loaded.has_value()) EndWait(*next, *loaded);
  }
  for (const auto& model : models_.All()) EndWait(*model, ShuttingDown());
  LetGo();
}

// nullptr: none within `most`, or a model is to sleep. One that waits for others delays none.
std::shared_ptr<ServedModel> ServedModels::NextToLoad(std::chrono::seconds most) {
  const auto until = Clock::now() + most;
  const std::int64_t total = BudgetOfAll(front());
  base::MutexLock lock(mutex_);
  for (;;) {
    if (auto model = queue_.NextToLoad(models_.All(), total, sleeps_)) return model;
    if (stops_ || std::exchange(sleep_asked_, false) || Clock::now() >= until) return nullptr;
    changed_.WaitUntil(mutex_, until);
  }
}

std::shared_ptr<ServedModel> ServedModels::NextToExamine() {
  base::MutexLock lock(mutex_);
  if (stops_) return nullptr;
  if (auto waiting = queue_.NextToExamine()) return waiting;
  lock.Unlock();
  return models_.NextToExamine();
}

void ServedModels::EndWait(Model& model, const Status& loaded) {
  base::MutexLock lock(mutex_);
  queue_.Remove(model);
  model.used_at = Clock::now();
  const auto waiting = std::exchange(model.waiting, {});
  lock.Unlock();
  for (const WaitingRequest& each : waiting) each.woken(loaded);
}

std::optional<Status> ServedModels::Load(Model& model) {
  // A request that came while the daemon started waits for a model that is loaded by now.
  if (model.loaded()) return model.service.Readiness();
  const auto begin = Clock::now();
  int sleeps = 0;
  {
    const base::MutexLock lock(mutex_);
    if (model.tried_at < 0) model.busy_since = begin;
    model.sleepy = false;  // one that is asked to sleep from now on sleeps once it is loaded
    sleeps = sleeps_;
  }
  bool busy = false;
  Status loaded = LoadWithin(model, busy);
  busy = busy && loaded.code() == StatusCode::kResourceExhausted;
  if (busy && begin < model.busy_since + LoadQueue::kBusyWait) {
    model.service.Unpublish();  // it does not load now
    const base::MutexLock lock(mutex_);
    model.tried_at = sleeps;
    return std::nullopt;
  }
  if (busy)
    loaded = base::Unavailable("other models answer requests and leave it no memory; ",
                               loaded.message());
  const double took = std::chrono::duration<double>(Clock::now() - begin).count();
  if (loaded.ok()) model.service.ReadFacts();
  if (several()) LogLoad(model.service, loaded, took);
  if (several() && !loaded.ok()) busy ? model.service.Unpublish() : model.service.MarkFailed();
  const std::shared_ptr<Model> held = models_.Of(model.service);
  const base::MutexLock lock(mutex_);
  if (busy) queue_.AddWaitedInVain(held);
  model.load_s = took;
  model.failure = loaded;
  // Models that answer are no fault of this one: it is tried again with the next request.
  model.failures = loaded.ok() || busy ? 0 : model.failures + 1;
  model.failed_at = Clock::now();
  return loaded.ok() || !several() ? loaded : LoadFailure(model.service, loaded);
}

Status ServedModels::LoadWithin(Model& model, bool& busy) {
  if (!several()) return model.service.Load();
  const auto load_within = [&](std::int64_t budget, bool in_memory) {
    model.budget = budget;
    return model.service.Load({.budget_bytes = budget,
                               .in_memory = in_memory,
                               .resident_before = ResidentBeside(models_.All(), model),
                               .cancelled = &cancelled_,
                               .on_progress = [this] { LetGo(); }});
  };
  // A context that nobody configured takes all memory there is; so the model's equal part is tried
  // first, but for one that comes from flash there, and then half as much again as it needs.
  const std::int64_t total = BudgetOfAll(front()), part = total / base::IntSize(models_.Listed());
  const bool from_flash = !model.service.config().model.memory.bundle.empty();
  const std::int64_t left = BudgetFor(total, models_.All(), model);
  for (std::int64_t budget = part, tried = 0; !from_flash && budget > tried && budget < left;) {
    Status in_memory = load_within(tried = budget, /*in_memory=*/true);
    if (in_memory.ok()) return in_memory;
    budget = tried == part ? BytesNeeded(in_memory) / 2 * 3 : 0;
  }
  for (;;) {
    Status loaded = load_within(BudgetFor(total, models_.All(), model), /*in_memory=*/false);
    if (loaded.code() != StatusCode::kResourceExhausted) return loaded;
    // No model is put to sleep for one that would not fit then, either.
    const std::int64_t needed = BytesNeeded(loaded);
    if (needed > MostFor(total, models_.All(), model)) return loaded;
    if (!MakeRoomFor(model, needed, busy)) return loaded;
  }
}

bool ServedModels::MakeRoomFor(Model& model, std::int64_t needed, bool& busy) {
  SleepChoice choice;
  {
    const base::MutexLock lock(mutex_);
    model.bytes_needed = needed;
    choice = ChooseToSleep(models_.All(), model, BudgetOfAll(front()));
    busy = choice.busy;
    if (stops_ || choice.victim == nullptr) return false;
    PutToSleep(*choice.victim, "its memory is wanted");
  }
  choice.victim->service.Sleep();
  return true;
}

// Threads that hold a model while it falls asleep find no engine.
void ServedModels::PutToSleep(Model& model, const char* why) {
  model.service.Unpublish();
  ++sleeps_;
  model.sleepy = false;
  model.keep_alive_s = model.keep_alive_default_s;
  base::LogInfo("the model ", model.service.model_name(), " sleeps: ", why);
}

void ServedModels::SleepExpired() {
  for (const auto& model : models_.All()) {
    base::MutexLock lock(mutex_);
    const char* const why = model->WhyToSleep(models_.Lists(model));
    if (stops_ || why == nullptr) continue;
    PutToSleep(*model, why);
    lock.Unlock();
    model->service.Sleep();
  }
}

bool ServedModels::WaitsForBusy() const {
  const base::MutexLock lock(mutex_);
  return queue_.WaitsForBusy();
}

void ServedModels::GiveUpUnread() {
  if (!WaitsForBusy()) return;
  for (const auto& model : models_.All())
    if (model->loaded()) model->service.GiveUpUnread(kReaderPatience);
}

void ServedModels::GrowOne() {
  std::shared_ptr<Model> model;
  {
    const base::MutexLock lock(mutex_);
    if (!stops_ && queue_.empty()) model = ChooseToGrow(models_.All(), BudgetOfAll(front()));
    if (model == nullptr) return;
    const int keep_alive_s = model->keep_alive_s;
    PutToSleep(*model, "it is loaded again, with more memory");
    model->keep_alive_s = keep_alive_s;
    queue_.Add(model);
  }
  model->service.Sleep();
}

void ServedModels::Stop() {
  const base::MutexLock lock(mutex_);
  stops_ = cancelled_ = true;
  changed_.NotifyAll();
}

void ServedModels::BeginDrain() {
  pulls_.End();
  Stop();
  for (const auto& model : models_.All()) {
    model->service.BeginDrain();
    EndWait(*model, ShuttingDown());
  }
}

void ServedModels::StopEngines() {
  Stop();
  if (loader_.joinable()) loader_.join();
  examiner_.reset();
  for (const auto& model : models_.All()) model->service.StopEngine();
}

}  // namespace thermocline::server
