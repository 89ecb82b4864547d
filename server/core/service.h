// The service behind HTTP and gRPC: the loaded engine, the model's names, and the state.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/base/mutex.h"
#include "engine/chat.h"
#include "engine/engine.h"
#include "engine/model_facts.h"
#include "server/chat/output_format.h"
#include "server/chat/token_file.h"
#include "server/chat/token_memory.h"
#include "server/core/examined_model.h"
#include "server/core/generation.h"
#include "server/core/ignored_fields.h"
#include "server/core/model_rights.h"
#include "server/core/reloadable_config.h"
#include "server/core/request_memory.h"
#include "server/core/server_config.h"
#include "server/core/workers.h"
#include "server/metrics/metrics.h"

namespace thermocline::server {

// An operator's commands to the whole daemon, by signal or route.
struct Control {
  std::function<Status()> reload;
  std::function<void()> drain;
};

// Threads for all connections: for templates and tokens of long bodies and of the more frequent
// short ones, and for grammars. Long bodies take turns, so more of them are begun than run.
constexpr int kWorkers = 2, kLongBegun = 16, kShortWorkers = 4,
              kCompilers = kGrammarsCompiledAtOnce, kLongNiceness = 10;

class ServedModels;

// The name of the configuration's model, then its aliases; "*" = any.
std::vector<std::string> ModelNames(const ServerConfig& config);

// The threads that prepare requests, of all models of a daemon.
struct ServiceThreads {
  explicit ServiceThreads(const RequestSizes& sizes)
      : long_work({.running = kWorkers,
                   .begun = kLongBegun,
                   .niceness = kLongNiceness,
                   .bytes_begun = sizes.values}) {}

  Workers long_work;  // long texts leave the processors to the tokens of running answers
  Workers short_work{kShortWorkers}, compilers{kCompilers};
};

// Thread-safe. The daemon listens before the model is loaded, so that it can report "loading".
class Service {
 public:
  // `threads`: those of all models of the daemon; nullptr: it has its own.
  explicit Service(std::shared_ptr<const ReloadableConfig> reloadable,
                   std::shared_ptr<ServiceThreads> threads = nullptr);

  // Loads the model (takes seconds) and generates a first token; then threads see the engine. After
  // an error the state is kFailed, or with `budget_bytes`, which replaces memory.budget_bytes, up
  // to the caller. Called again after an
  // error or Sleep. Unavailable while draining.
  // `resident_before`: as MemoryOptions. `cancelled`: as EngineConfig.
  struct LoadParams {
    std::int64_t budget_bytes = 0;
    bool in_memory = false;  // ResourceExhausted if it comes from flash within the budget
    std::size_t resident_before = 0;
    const std::atomic<bool>* cancelled = nullptr;
    std::function<void()> on_progress = {};  // called now and then while weights are read
  };
  Status Load(const LoadParams& params);
  Status Load() { return Load(LoadParams()); }
  // Requires for both: no thread uses the engine (ServedModels). Threads that ask for it later get
  // nullptr; then the model's memory is freed, which may take a while.
  void Unpublish();
  void Sleep();
  // Called after a Load with a budget that failed for good.
  void MarkFailed() { ChangeState(ServiceState::kFailed); }
  // All models of the daemon, this one among them; nullptr = this one alone.
  ServedModels* models() const { return models_; }
  void SetModels(ServedModels* models) { models_ = models; }
  // Rejects new work as Unavailable from now on, and cancels queued work with the same error.
  void BeginDrain();
  // Cancels every generation and reports it to the clients.
  void CancelGenerations();
  // As Generation::GiveUpUnread, for every generation.
  void GiveUpUnread(std::chrono::steady_clock::duration patience);
  // Destroys the engine. Requires: no thread serves requests any more.
  void StopEngine();

  ServiceState state() const { return state_.load(); }
  // Unavailable, with the reason, while requests cannot be served.
  Status Readiness() const;
  // `watcher` is called for every later change of the state, in order, on the thread that makes the
  // change; {} removes it. After this returns, the earlier watcher is not called any more.
  void WatchState(std::function<void(ServiceState)> watcher) {
    const base::MutexLock lock(state_mutex_);
    watcher_ = std::move(watcher);
  }
  // The defaults for a request's sampling: the configuration, then the model's own (unknown while
  // it loads), then the common ones.
  SamplingDefaults sampling_defaults() const {
    const Engine* loaded = engine();
    const SamplingDefaults own = loaded == nullptr ? SamplingDefaults{} : loaded->sampling();
    return Merge(config_.sampling, OrCommon(own));
  }
  // The pooling for embeddings; known once the model is loaded.
  Pooling pooling() const {
    const Engine* loaded = engine();
    return loaded == nullptr ? Pooling::kMean : loaded->pooling();
  }
  // The facts in the model's files; nullptr until ReadFacts, which ServedModels calls.
  std::shared_ptr<const ModelFacts> facts() const {
    const base::MutexLock lock(facts_mutex_);
    return facts_;
  }
  // Does nothing if the model must be examined: Examine finds the facts.
  void ReadFacts();
  // Its files are examined before they are read in this process: nobody has named them.
  void MustBeExamined() { must_be_examined_ = true; }
  bool must_be_examined() const { return must_be_examined_; }
  // True if the model must be examined and was not, as its files are now.
  bool WantsExamination() const;
  // Calls ExamineModel, and keeps its outcome until the files change. Nothing is kept if `ends`
  // was true.
  void Examine(const std::function<bool()>& ends);
  double load_progress() const { return load_progress_.load(); }
  // The configuration at the start.
  const ServerConfig& config() const { return config_; }
  // The current reloadable configuration.
  std::shared_ptr<const ReloadableConfig> reloadable() const;
  void SetReloadable(std::shared_ptr<const ReloadableConfig> reloadable);
  // Called before requests are served.
  void SetControl(Control control) { control_ = std::move(control); }
  const Control& control() const { return control_; }
  const std::string& model_name() const { return model_name_; }
  // The name, and model.aliases as they are now; "*" = any.
  std::vector<std::string> own_names() const;
  // The names that the client may use: these, and those of adapters.
  std::vector<std::string> model_names(const ModelRights& rights = {}) const;
  std::int64_t started_at() const { return started_at_; }  // Unix time
  Metrics& metrics() { return metrics_; }
  IgnoredFields& ignored_fields() { return ignored_fields_; }
  // Counts a call that the model wrote in another format than its template's. The first one is
  // logged.
  void LogFirstLenientCall();
  // The threads that prepare a request of so many bytes.
  Workers& workers(std::size_t bytes) {
    return bytes > kShortBytesMax ? threads_->long_work : threads_->short_work;
  }
  // The memory for request bodies and the data made from them.
  const RequestSizes& request_sizes() const { return request_sizes_; }
  RequestMemory& request_memory() { return request_memory_; }
  // The threads that compile grammars.
  Workers& compilers() { return threads_->compilers; }
  const std::shared_ptr<ServiceThreads>& threads() const { return threads_; }
  void StopWorkers() {
    threads_->long_work.Stop();
    threads_->short_work.Stop();
    threads_->compilers.Stop();
  }

  // The engine and its chat template; nullptr while loading and after StopEngine.
  bool was_loaded() const { return was_loaded_; }  // now or earlier
  Engine* engine() const { return published_.load() ? engine_.get() : nullptr; }
  const ChatFormatter* chat() const { return published_.load() ? chat_.get() : nullptr; }
  // The format of the model's answers. Requires: the model is loaded.
  const std::shared_ptr<const chat::OutputFormat>& output_format() const { return format_; }

  // The tokens of earlier answers, whose keys begin with answers_salt().
  chat::TokenMemory& token_memory() const { return token_memory_; }
  const std::string& answers_salt() const { return answers_salt_; }
  // Remembers an answer, also on flash if the prefix cache is there.
  void KeepAnswer(const base::Digest256& key, std::vector<int> tokens);

  // True after an error that only a restart can fix; the daemon drains.
  bool failed() const { return failed_.load(); }

  // Returns after how many whole seconds a rejected client should retry, 1 to 120.
  int RetryAfterSeconds() const;

  // The generations in progress, by id. Ids chosen by clients may be duplicates.
  void AddGeneration(const std::shared_ptr<Generation>& generation);
  void RemoveGeneration(const Generation& generation);
  std::vector<std::shared_ptr<Generation>> Generations();
  // Cancels every generation with this id, only those of `tenant` if one is given; false if there
  // is none.
  bool Cancel(const std::string& id, CancelCause cause,
              const std::optional<std::string>& tenant = std::nullopt);

  // Requests whose first byte has arrived and whose answer is not fully written.
  std::atomic<int> active_requests{0};

 private:
  // The watcher is called in the order of the changes.
  void ChangeState(ServiceState state);
  // Generates one token, so that the first client does not pay for setup on first use. Then the
  // state is kReady. Errors of the generation.
  Status LoadEngine(const LoadParams& params);
  // The status of the files' examination, if the model must be examined, and whether a load with
  // `params` has the memory for reading them.
  Status CheckExamined(const LoadParams& params) const;
  void OpenTokenFile();
  Status WarmUp();

  const ServerConfig config_;
  mutable base::Mutex facts_mutex_;
  std::shared_ptr<const ModelFacts> facts_ GUARDED_BY(facts_mutex_);
  std::optional<Examination> examination_ GUARDED_BY(facts_mutex_);  // the last one
  const std::string model_name_;
  std::int64_t started_at_;
  Metrics metrics_;
  IgnoredFields ignored_fields_{metrics_};
  const RequestSizes request_sizes_ = RequestSizesOf(config_);
  RequestMemory request_memory_{request_sizes_.bodies,
                                static_cast<std::size_t>(config_.body_bytes_max)};
  const std::shared_ptr<ServiceThreads> threads_;
  Control control_;
  ServedModels* models_ = nullptr;  // set before requests are served
  std::unique_ptr<Engine> engine_;  // written before published_
  // The last load's times; only Load uses them.
  std::shared_ptr<const EngineMeasurements> measured_;
  std::unique_ptr<ChatFormatter> chat_;  // likewise; nullptr if the model has no template
  std::shared_ptr<const chat::OutputFormat> format_ =
      std::make_shared<const chat::OutputFormat>();  // likewise
  mutable chat::TokenMemory token_memory_;
  std::string answers_salt_;                     // written before published_
  std::unique_ptr<chat::TokenFile> token_file_;  // likewise; nullptr: none
  std::atomic<bool> published_{false}, was_loaded_{false};
  std::atomic<bool> must_be_examined_{false};
  std::atomic<bool> failed_{false};
  std::atomic<bool> lenient_call_logged_{false};
  std::atomic<ServiceState> state_{ServiceState::kLoading};
  base::Mutex state_mutex_;  // held from a change until the watcher has returned
  std::function<void(ServiceState)> watcher_ GUARDED_BY(state_mutex_);
  std::atomic<double> load_progress_{0};
  mutable base::Mutex reloadable_mutex_;
  std::shared_ptr<const ReloadableConfig> reloadable_ GUARDED_BY(reloadable_mutex_);
  base::Mutex mutex_;
  std::unordered_multimap<std::string, std::weak_ptr<Generation>> generations_ GUARDED_BY(mutex_);
};

}  // namespace thermocline::server
