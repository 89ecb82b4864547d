// The service behind HTTP and gRPC: the engine once it is loaded, its names, its state.
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
#include "server/chat/output_format.h"
#include "server/core/generation.h"
#include "server/core/ignored_fields.h"
#include "server/core/live.h"
#include "server/core/request_memory.h"
#include "server/core/server_config.h"
#include "server/core/workers.h"
#include "server/metrics/metrics.h"

namespace thermocline::server {

// Requests of an operator to the whole daemon, by signal or route.
struct Control {
  std::function<Status()> reload;
  std::function<void()> drain;
};

// Threads for all connections: templates and tokens of long bodies, and of short ones, which are
// more; and grammars. A long body is worked on in turns, so more of them are begun than run.
constexpr int kWorkers = 2, kLongBegun = 16, kShortWorkers = 4,
              kCompilers = kGrammarsCompiledAtOnce;

// Thread-safe. Listening begins before the model is there, so that "loading" can be told.
class Service {
 public:
  explicit Service(std::shared_ptr<const Live> live);

  // Loads the model (takes seconds) and has it say a first token. After an error the state is
  // kFailed.
  Status Load();
  // From now on new work is refused as Unavailable; what is not begun ends so, too.
  void BeginDrain();
  // Cancels every generation; their clients are told.
  void CutOff();
  // Ends the engine. Requires: no thread serves requests any more.
  void StopEngine();

  ServiceState state() const { return state_.load(); }
  // Unavailable, with the reason, while requests cannot be served.
  Status Readiness() const;
  // `watcher` is told every later change of the state, in order, on the thread that makes it. {}:
  // nobody; once it returns, the earlier one is not called any more.
  void WatchState(std::function<void(ServiceState)> watcher) {
    const base::MutexLock lock(state_mutex_);
    watcher_ = std::move(watcher);
  }
  // Sampling where a request is silent: the configuration, else the model's own, which is not
  // known while the model loads, else the common ones.
  SamplingDefaults sampling_defaults() const {
    const Engine* loaded = engine();
    const SamplingDefaults own = loaded == nullptr ? SamplingDefaults{} : loaded->sampling();
    return Merge(config_.sampling, OrCommon(own));
  }
  // The pooling of texts whose vectors are wanted; known once the model is loaded.
  Pooling pooling() const {
    const Engine* loaded = engine();
    return loaded == nullptr ? Pooling::kMean : loaded->pooling();
  }
  double load_progress() const { return load_progress_.load(); }
  // As at the start.
  const ServerConfig& config() const { return config_; }
  // The part that reloading changes, as of now.
  std::shared_ptr<const Live> live() const;
  void SetLive(std::shared_ptr<const Live> live);
  // Set before requests are served.
  void SetControl(Control control) { control_ = std::move(control); }
  const Control& control() const { return control_; }
  const std::string& model_name() const { return model_name_; }
  // The name and those of model.aliases; "*" is any.
  const std::vector<std::string>& model_names() const { return model_names_; }
  std::int64_t started_at() const { return started_at_; }  // Unix time
  Metrics& metrics() { return metrics_; }
  IgnoredFields& ignored_fields() { return ignored_fields_; }
  // The model wrote a call in another form than its template's. The first time is logged.
  void NoteLenientCall();
  // The threads that read a request of so many bytes.
  Workers& workers(std::size_t bytes) { return bytes > kShortBytesMax ? workers_ : short_workers_; }
  // The memory that bodies and what is made of them may take.
  const RequestSizes& request_sizes() const { return request_sizes_; }
  RequestMemory& request_memory() { return request_memory_; }
  // The threads that compile grammars.
  Workers& compilers() { return compilers_; }
  void StopWorkers() {
    workers_.Stop();
    short_workers_.Stop();
    compilers_.Stop();
  }

  // The engine and its chat template; nullptr while loading and after StopEngine.
  Engine* engine() const { return published_.load() ? engine_.get() : nullptr; }
  const ChatFormatter* chat() const { return published_.load() ? chat_.get() : nullptr; }
  // The format of the model's answers. Requires: it is loaded.
  const std::shared_ptr<const chat::OutputFormat>& output_format() const { return format_; }

  // The engine met something that only a new process can mend; the daemon drains.
  bool failed() const { return failed_.load(); }

  // Whole seconds after which a refused client may try again, 1 to 120.
  int RetryAfterSeconds() const;

  // The generations in progress, by id. Ids that clients chose may come twice.
  void Remember(const std::shared_ptr<Generation>& generation);
  void Forget(const Generation& generation);
  std::vector<std::shared_ptr<Generation>> Generations();
  // Cancels every generation `id`, if given only those of `tenant`; false: there is none.
  bool Cancel(const std::string& id, CancelCause cause,
              const std::optional<std::string>& tenant = std::nullopt);

  // Requests whose first byte is there and whose answer is not wholly written yet.
  std::atomic<int> active_requests{0};

 private:
  // The watcher hears of changes in the order in which they are made.
  void ChangeState(ServiceState state);
  // Lets the loaded model say one token, so that the first client does not pay for what is set up
  // on first use. The state is kReady after it. Errors of the generation.
  Status LoadEngine();
  Status WarmUp();

  const ServerConfig config_;
  std::string model_name_;
  std::vector<std::string> model_names_;
  std::int64_t started_at_;
  Metrics metrics_;
  IgnoredFields ignored_fields_{metrics_};
  const RequestSizes request_sizes_ = RequestSizesOf(config_);
  RequestMemory request_memory_{request_sizes_.bodies,
                                static_cast<std::size_t>(config_.body_bytes_max)};
  Workers workers_{Workers::Params{
      .running = kWorkers, .begun = kLongBegun, .bytes_begun = request_sizes_.values}};
  Workers short_workers_{kShortWorkers}, compilers_{kCompilers};
  Control control_;
  std::unique_ptr<Engine> engine_;       // written once, before published_
  std::unique_ptr<ChatFormatter> chat_;  // likewise; nullptr if the model has no template
  std::shared_ptr<const chat::OutputFormat> format_ =
      std::make_shared<const chat::OutputFormat>();  // likewise
  std::atomic<bool> published_{false};
  std::atomic<bool> failed_{false};
  std::atomic<bool> lenient_call_noted_{false};
  std::atomic<ServiceState> state_{ServiceState::kLoading};
  base::Mutex state_mutex_;  // of changes, until the watcher has heard of them
  std::function<void(ServiceState)> watcher_ GUARDED_BY(state_mutex_);
  std::atomic<double> load_progress_{0};
  mutable base::Mutex live_mutex_;
  std::shared_ptr<const Live> live_ GUARDED_BY(live_mutex_);
  base::Mutex mutex_;
  std::unordered_multimap<std::string, std::weak_ptr<Generation>> generations_ GUARDED_BY(mutex_);
};

}  // namespace thermocline::server
