#include "server/core/service.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <filesystem>

#include "engine/base/out_of_memory.h"
#include "server/core/model_format.h"

namespace thermocline::server {

Service::Service(std::shared_ptr<const ReloadableConfig> reloadable)
    : config_(reloadable->config),
      model_name_(config_.model_name),
      started_at_(std::time(nullptr)),
      metrics_(config_.metrics_prefix, config_.metrics_buckets,
               std::make_unique<SensorPoller>("/sys")),
      reloadable_(std::move(reloadable)) {
  if (model_name_.empty()) model_name_ = std::filesystem::path(config_.model.path).stem().string();
  if (model_name_.empty())
    model_name_ = std::filesystem::path(config_.model.path).parent_path().filename().string();
  model_name_ = base::ReplaceInvalidUtf8(model_name_);  // a file's name may be invalid UTF-8
  model_names_ = SplitList(config_.model_aliases);
  model_names_.insert(model_names_.begin(), model_name_);
}

std::shared_ptr<const ReloadableConfig> Service::reloadable() const {
  const base::MutexLock lock(reloadable_mutex_);
  return reloadable_;
}

void Service::SetReloadable(std::shared_ptr<const ReloadableConfig> reloadable) {
  const base::MutexLock lock(reloadable_mutex_);
  reloadable_ = std::move(reloadable);
}

Status Service::Load() {
  Status loaded = base::OrNoMemory("the model", [this] { return LoadEngine(); });
  if (!loaded.ok()) ChangeState(ServiceState::kFailed);
  return loaded;
}

Status Service::LoadEngine() {
  EngineConfig engine_config{.model = config_.model, .serving = config_.serving};
  engine_config.model.memory.requests_bytes = request_sizes_.total();
  engine_config.on_progress = [this](double share) { load_progress_ = share; };
  engine_config.on_fatal = [this] {
    base::LogError("the GPU cannot be used any more; the daemon ends, to be started anew");
    failed_ = true;
    ::kill(::getpid(), SIGTERM);  // starts a drain
  };
  auto engine = Engine::Load(engine_config);
  RETURN_IF_ERROR(engine.status());
  engine_ = *std::move(engine);
  auto chat = ChatFormatter::Create(engine_->tokenizer());
  if (chat.ok()) {
    chat_ = *std::move(chat);
    format_ =
        std::make_shared<const chat::OutputFormat>(FormatOfModel(*chat_, engine_->tokenizer()));
  } else if (chat.status().code() == StatusCode::kFailedPrecondition) {
    base::LogWarning("the model has no chat template; /v1/chat/completions will refuse requests");
  } else {
    return chat.status();
  }
  published_ = true;
  // A reload before the engine existed could not set these limits.
  std::shared_ptr<const ReloadableConfig> taken;
  while (taken != reloadable()) {
    taken = reloadable();
    engine_->SetQueueLimits(taken->config.serving.queue_capacity,
                            taken->config.serving.queue_prefill_tokens);
  }
  return WarmUp();
}

Status Service::WarmUp() {
  Request request;
  request.prompt = {0};
  request.max_tokens = 1;
  request.ignore_eos = true;
  auto channel = engine_->Submit(std::move(request));
  // A drain that starts meanwhile is not an error.
  if (!channel.ok() && state_ == ServiceState::kDraining) return OkStatus();
  if (!channel.ok()) return channel.status();
  TokenChannel::Update update;
  while (!update.finished) (*channel)->WaitForUpdate(update);
  if (update.reason == FinishReason::kError) {
    ChangeState(ServiceState::kFailed);
    return update.error.Annotate("the first token");
  }
  ChangeState(ServiceState::kReady);
  return OkStatus();
}

void Service::ChangeState(ServiceState state) {
  const base::MutexLock lock(state_mutex_);
  // Draining has begun.
  if (state == ServiceState::kReady && state_ != ServiceState::kLoading) return;
  state_ = state;
  if (watcher_) watcher_(state);
}

Status Service::Readiness() const {
  switch (state()) {
    case ServiceState::kReady:
      return OkStatus();
    case ServiceState::kDraining:
      return ShuttingDown();
    case ServiceState::kFailed:
      return base::Unavailable("the model failed to load; the server's log says why")
          .WithReason(Reason::kLoadFailed);
    case ServiceState::kLoading:
      break;
  }
  return base::Unavailable("the model is loading (", static_cast<int>(load_progress() * 100), "%)")
      .WithReason(Reason::kLoading);
}

void Service::BeginDrain() {
  ChangeState(ServiceState::kDraining);
  if (Engine* loaded = engine()) loaded->StopAccepting();
  // Queued requests are cancelled at once, so that clients can retry elsewhere: running ones may
  // use all of the remaining time.
  for (const auto& generation : Generations()) {
    if (!generation->begun()) generation->Cancel(CancelCause::kShutdown);
  }
}

void Service::CancelGenerations() {
  if (Engine* loaded = engine()) loaded->CancelAll();
}

void Service::StopEngine() {
  published_ = false;
  // No thread takes answers any more. This breaks the reference cycles between sessions and
  // generations.
  for (const auto& generation : Generations()) generation->Cancel(CancelCause::kDisconnect);
  engine_.reset();
}

void Service::LogFirstLenientCall() {
  if (lenient_call_logged_.exchange(true)) return;
  base::LogInfo(
      model_name_,
      " writes calls of tools in another form than its chat template; they are understood "
      "(chat.lenient_calls)");
}

int Service::RetryAfterSeconds() const {
  const Engine* loaded = engine();
  if (loaded == nullptr) return 2;
  return static_cast<int>(std::clamp(std::ceil(loaded->RetryAfterS()), 1.0, 120.0));
}

void Service::AddGeneration(const std::shared_ptr<Generation>& generation) {
  const base::MutexLock lock(mutex_);
  generations_.emplace(generation->id(), generation);
}

void Service::RemoveGeneration(const Generation& generation) {
  const base::MutexLock lock(mutex_);
  const auto [begin, end] = generations_.equal_range(generation.id());
  for (auto it = begin; it != end;) it = it->second.expired() ? generations_.erase(it) : ++it;
}

std::vector<std::shared_ptr<Generation>> Service::Generations() {
  std::vector<std::shared_ptr<Generation>> all;
  const base::MutexLock lock(mutex_);
  for (const auto& [id, weak] : generations_) {
    if (auto generation = weak.lock()) all.push_back(std::move(generation));
  }
  return all;
}

bool Service::Cancel(const std::string& id, CancelCause cause,
                     const std::optional<std::string>& tenant) {
  // Released without the lock, since the destructor calls RemoveGeneration, which takes it.
  std::vector<std::shared_ptr<Generation>> found;
  {
    const base::MutexLock lock(mutex_);
    const auto [begin, end] = generations_.equal_range(id);
    for (auto it = begin; it != end; ++it) found.push_back(it->second.lock());
  }
  bool any = false;
  for (const auto& generation : found) {
    if (generation == nullptr || generation->finished() ||
        generation->tenant() != tenant.value_or(generation->tenant()))
      continue;
    generation->Cancel(cause);
    any = true;
  }
  return any;
}

}  // namespace thermocline::server
