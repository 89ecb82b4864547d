#include "server/core/service.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <filesystem>
#include <limits>

#include "engine/base/interruption.h"
#include "engine/base/out_of_memory.h"
#include "engine/hub/find_model.h"
#include "server/core/model_format.h"

namespace thermocline::server {

namespace {

// A LoRA adapter is named like a model, and then computed with it.
void AddAdapters(const ServerConfig& config, std::vector<std::string>& names) {
  const auto adapters = ParseAdapters(config.model.lora);
  if (!adapters.ok()) return;  // the model is not loaded then
  for (const AdapterChoice& each : *adapters) names.push_back(base::ReplaceInvalidUtf8(each.name));
}

}  // namespace

std::vector<std::string> ModelNames(const ServerConfig& config) {
  std::string name = config.model_name;
  if (name.empty()) name = hub::ServedName(config.model.path);
  std::vector<std::string> names = SplitList(config.model_aliases);
  names.insert(names.begin(),
               base::ReplaceInvalidUtf8(name));  // a file's name may be invalid UTF-8
  AddAdapters(config, names);
  return names;
}

Service::Service(std::shared_ptr<const ReloadableConfig> reloadable,
                 std::shared_ptr<ServiceThreads> threads)
    : config_(reloadable->config),
      model_name_(ModelNames(config_).front()),
      started_at_(std::time(nullptr)),
      metrics_(config_.metrics_prefix, config_.metrics_buckets,
               std::make_unique<SensorPoller>("/sys")),
      threads_(threads != nullptr ? std::move(threads)
                                  : std::make_shared<ServiceThreads>(request_sizes_)),
      reloadable_(std::move(reloadable)) {}

std::vector<std::string> Service::own_names() const {
  std::vector<std::string> names = SplitList(reloadable()->config.model_aliases);
  names.insert(names.begin(), model_name_);
  return names;
}

std::vector<std::string> Service::model_names(const ModelRights& rights) const {
  std::vector<std::string> names = own_names(), adapters;
  if (!rights.Allow(names)) names.clear();
  AddAdapters(config_, adapters);
  for (std::string& adapter : adapters)
    if (rights.Allow({adapter})) names.push_back(std::move(adapter));
  return names;
}

std::shared_ptr<const ReloadableConfig> Service::reloadable() const {
  const base::MutexLock lock(reloadable_mutex_);
  return reloadable_;
}

void Service::SetReloadable(std::shared_ptr<const ReloadableConfig> reloadable) {
  const base::MutexLock lock(reloadable_mutex_);
  reloadable_ = std::move(reloadable);
}

Status Service::Load(const LoadParams& params) {
  if (state() == ServiceState::kDraining) return ShuttingDown();
  load_progress_ = 0;
  ChangeState(ServiceState::kLoading);
  Status loaded = base::OrNoMemory("the model", [&]() -> Status {
    try {
      RETURN_IF_ERROR(CheckExamined(params));
      static const std::atomic<bool> kNever{false};
      const base::InterruptScope scope(params.cancelled != nullptr ? *params.cancelled : kNever);
      return LoadEngine(params);
    } catch (const std::logic_error& fault) {  // a hostile file must not end the others' service
      return base::Internal("loading: ", fault.what());
    }
  });
  if (loaded.ok()) return loaded;
  // The engine was not published, so nobody uses what is freed here.
  engine_.reset();
  chat_.reset();
  token_file_.reset();
  TrimHeap(std::numeric_limits<std::size_t>::max());
  if (params.budget_bytes == 0) ChangeState(ServiceState::kFailed);
  return loaded;
}

Status Service::CheckExamined(const LoadParams& params) const {
  if (!must_be_examined_) return OkStatus();
  const std::string files = FilesOf(config_.model.path);
  const base::MutexLock lock(facts_mutex_);
  if (!examination_.has_value() || examination_->files != files)
    return base::Unavailable("its files have just changed; ask again in a moment");
  RETURN_IF_ERROR(examination_->status);
  const std::int64_t peak = examination_->peak_bytes;
  if (params.budget_bytes == 0 || peak <= params.budget_bytes) return OkStatus();
  return base::ResourceExhausted("reading its files takes ",
                                 base::HumanBytes(static_cast<std::size_t>(peak)))
      .WithNumber("bytes_needed", static_cast<std::size_t>(peak));
}

bool Service::WantsExamination() const {
  if (!must_be_examined_) return false;
  const std::string files = FilesOf(config_.model.path);
  const base::MutexLock lock(facts_mutex_);
  if (!examination_.has_value()) return true;
  const auto now = Examination::Clock::now();
  if (examination_->files != files) return now > examination_->again_at();
  // Without a process, the next try is worth something only later.
  constexpr std::chrono::seconds kPause{10};
  return examination_->status.code() == StatusCode::kUnavailable &&
         now > examination_->began + kPause;
}

void Service::Examine(const std::function<bool()>& ends) {
  Examination found = ExamineModel(config_.model.path, config_.model.memory.budget_bytes, ends);
  if (found.status.code() == StatusCode::kCancelled) return;
  const base::MutexLock lock(facts_mutex_);
  facts_ = std::make_shared<const ModelFacts>(found.facts);
  examination_ = std::move(found);
}

Status Service::LoadEngine(const LoadParams& params) {
  EngineConfig engine_config{.model = config_.model, .serving = config_.serving};
  engine_config.model.memory.requests_bytes = request_sizes_.total();
  engine_config.model.memory.resident_before = params.resident_before;
  if (params.budget_bytes > 0) engine_config.model.memory.budget_bytes = params.budget_bytes;
  engine_config.cancelled = params.cancelled;
  engine_config.measured = measured_;
  engine_config.on_progress = [this, told = params.on_progress](double share) {
    load_progress_ = share;
    if (told) told();
  };
  engine_config.on_fatal = [this] {
    base::LogError("the GPU cannot be used any more; the daemon ends, to be started anew");
    failed_ = true;
    ::kill(::getpid(), SIGTERM);  // starts a drain
  };
  auto engine = Engine::Load(engine_config);
  RETURN_IF_ERROR(engine.status());
  engine_ = *std::move(engine);
  if (params.in_memory && engine_->Stats().flash.used)
    return base::ResourceExhausted("the weights come from flash in this memory");
  if (engine_->measurements() != nullptr) measured_ = engine_->measurements();
  auto chat = ChatFormatter::Create(engine_->tokenizer());
  if (chat.ok()) {
    chat_ = *std::move(chat);
    format_ =
        std::make_shared<const chat::OutputFormat>(FormatOfModel(*chat_, engine_->tokenizer()));
  } else if (chat.status().code() == StatusCode::kFailedPrecondition) {
    if (engine_->writes())
      base::LogWarning("the model has no chat template; /v1/chat/completions will refuse requests");
  } else {
    return chat.status();
  }
  OpenTokenFile();
  RETURN_IF_ERROR(WarmUp());
  published_ = was_loaded_ = true;
  ChangeState(ServiceState::kReady);
  if (state_ == ServiceState::kDraining) engine_->StopAccepting();  // a drain saw no engine
  // A reload before the engine existed could not set these limits.
  std::shared_ptr<const ReloadableConfig> taken;
  while (taken != reloadable()) {
    taken = reloadable();
    engine_->SetQueueLimits(taken->config.serving.queue_capacity,
                            taken->config.serving.queue_prefill_tokens);
  }
  return OkStatus();
}

// Answers are named by the vocabulary and template that their tokens are of.
void Service::OpenTokenFile() {
  const model::Vocabulary& v = engine_->tokenizer().vocabulary();
  base::Sha256 hash;
  for (const std::string& token : v.tokens) hash.Add(StrCat(token.size(), ":", token));
  hash.Add(StrCat(v.chat_template, "\n", v.tool_template));
  answers_salt_ = base::HexOf(hash.Digest());
  const std::string& folder = config_.serving.prefix_path;
  if (folder.empty()) return;
  constexpr std::size_t kNameDigits = 16;
  auto file = chat::TokenFile::Open(
      StrCat(folder, "/answers-", answers_salt_.substr(0, kNameDigits), ".tokens"), token_memory_);
  if (file.ok()) {
    token_file_ = *std::move(file);
  } else {
    base::LogWarning("answers' tokens are not kept on flash: ", file.status().message());
  }
}

void Service::ReadFacts() {
  if (must_be_examined_) return;
  constexpr std::size_t kHeaderBytes = 64 << 20;  // about as many as a header's values take
  auto facts = std::make_shared<ModelFacts>();
  try {
    *facts = ReadModelFacts(config_.model.path);
    TrimHeap(kHeaderBytes);
  } catch (const std::exception& error) {  // memory was lacking
    base::LogWarning("the facts of ", model_name(), " are unknown: ", error.what());
  }
  const base::MutexLock lock(facts_mutex_);
  facts_ = std::move(facts);
}

void Service::KeepAnswer(const base::Digest256& key, std::vector<int> tokens) {
  if (token_file_ != nullptr) token_file_->Append(key, tokens);
  token_memory_.Remember(key, std::move(tokens));
}

Status Service::WarmUp() {
  Request request;
  request.prompt = {0};
  request.max_tokens = 1;
  request.ignore_eos = true;
  if (!engine_->writes()) request.embed = EmbedRequest{.ends = {1}};
  auto channel = engine_->Submit(std::move(request));
  // A drain that starts meanwhile is not an error.
  if (!channel.ok() && state_ == ServiceState::kDraining) return OkStatus();
  if (!channel.ok()) return channel.status();
  TokenChannel::Update update;
  while (!update.finished) (*channel)->WaitForUpdate(update);
  if (update.reason == FinishReason::kError) return update.error.Annotate("the first token");
  return OkStatus();
}

void Service::ChangeState(ServiceState state) {
  const base::MutexLock lock(state_mutex_);
  // Draining has begun.
  if (state == ServiceState::kReady && state_ != ServiceState::kLoading) return;
  const bool was_draining = state_ == ServiceState::kDraining;
  if (was_draining && (state == ServiceState::kLoading || state == ServiceState::kSleeping)) return;
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
    case ServiceState::kSleeping:
      return base::Unavailable("the model '", model_name_, "' sleeps; a request for it wakes it")
          .WithReason(Reason::kLoading);
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

void Service::GiveUpUnread(std::chrono::steady_clock::duration patience) {
  for (const auto& generation : Generations()) generation->GiveUpUnread(patience);
}

void Service::StopEngine() {
  published_ = false;
  // No thread takes answers any more. This breaks the reference cycles between sessions and
  // generations.
  for (const auto& generation : Generations()) generation->Cancel(CancelCause::kDisconnect);
  engine_.reset();
}

void Service::Unpublish() {
  published_ = false;
  ChangeState(ServiceState::kSleeping);
}

void Service::Sleep() {
  StopEngine();
  chat_.reset();
  token_file_.reset();
  metrics_.ForgetEngine();
}

void Service::LogFirstLenientCall() {
  if (lenient_call_logged_.exchange(true)) return;
  base::LogInfo(
      model_name_,
      " writes calls of tools in another form than its chat template; they are understood "
      "(chat.lenient_calls)");
}

int Service::RetryAfterSeconds() const {
  // A request that is refused before it is routed does not hold this model.
  const bool falls_asleep = models_ != nullptr && models_->several();
  const auto held =
      falls_asleep ? models_->Hold(model_name_, ServedModels::Purpose::kLook) : nullptr;
  const Engine* loaded = falls_asleep && held == nullptr ? nullptr : engine();
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
