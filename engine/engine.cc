#include "engine/engine.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>

#include "engine/base/log.h"
#include "engine/exec/loaded_model.h"
#include "engine/sched/scheduler.h"
#include "engine/spec/set_up.h"
#include "engine/text/dry_breakers.h"

namespace thermocline {
namespace {

constexpr int kContextLengthDefaultMax =
    8192;  // tokens; longer contexts are asked for, they cost memory

// What is told of a request besides its text, and its place among others.
Status ValidateAsked(const Request& request, int vocab_size) {
  if (request.logprobs < -1 || request.logprobs > std::min(kLogprobsMax, vocab_size))
    return base::InvalidArgument("logprobs is ", request.logprobs, "; it must lie in [0, ",
                                 std::min(kLogprobsMax, vocab_size), "]");
  if (request.prompt_logprobs && request.logprobs < 0)
    return base::InvalidArgument("logprobs: those of the prompt need those of the tokens");
  if (request.priority < kPriorityMin || request.priority > kPriorityMax)
    return base::InvalidArgument("priority is ", request.priority, "; it must lie in [",
                                 kPriorityMin, ", ", kPriorityMax, "]");
  if (request.sampling.min_tokens < 0 ||
      (request.max_tokens > 0 && request.sampling.min_tokens > request.max_tokens))
    return base::InvalidArgument("min_tokens is ", request.sampling.min_tokens,
                                 "; it must lie in [0, max_tokens]");
  return OkStatus();
}

Status ValidateRequest(const Request& request, int context_length, int vocab_size) {
  if (request.prompt.empty()) return base::InvalidArgument("the prompt is empty");
  if (static_cast<int>(request.prompt.size()) >= context_length) {
    return base::OutOfRange("the prompt has ", request.prompt.size(),
                            " tokens, and at least one more must fit the context of ",
                            context_length, " tokens; shorten the conversation");
  }
  if (request.max_tokens < 0)
    return base::InvalidArgument("max_tokens is ", request.max_tokens, "; it must be at least 1");
  for (const int token : request.prompt) {
    if (token < 0 || token >= vocab_size)
      return base::InvalidArgument("token id ", token, " is beyond the vocabulary of ", vocab_size);
  }
  const auto known = [vocab_size](const char* field, int token) {
    if (token >= 0 && token < vocab_size) return OkStatus();
    return base::InvalidArgument(field, ": token id ", token, " is beyond the vocabulary of ",
                                 vocab_size);
  };
  for (const auto& [token, bias] : request.sampling.logit_bias)
    RETURN_IF_ERROR(known("logit_bias", token));
  for (const int token : request.stop_tokens) RETURN_IF_ERROR(known("stop_token_ids", token));
  RETURN_IF_ERROR(ValidateAsked(request, vocab_size));
  for (const std::string& stop : request.stop) {
    if (stop.empty()) return base::InvalidArgument("stop: an empty string would stop at once");
  }
  return ValidateSampling(request.sampling);
}

// Blocks of keys and values that finished requests may keep, and of all.
struct KvBlocks {
  std::int64_t prefix, all;
};
KvBlocks CountBlocks(const model::ModelConfig& config, kernels::KvType type, int context,
                     std::int64_t prefix_cache_bytes) {
  const auto block_bytes = static_cast<std::int64_t>(exec::KvPool::BlockBytes(config, type));
  const int context_blocks = exec::BlocksFor(context);
  const std::int64_t kept =
      prefix_cache_bytes < 0 ? context_blocks : prefix_cache_bytes / block_bytes;
  return {kept, context_blocks + 1 + kept};
}

int ContextLength(const EngineConfig& config, const model::ModelConfig& model) {
  return config.context_length > 0
             ? config.context_length
             : std::min(model.max_position_embeddings, kContextLengthDefaultMax);
}

struct Memory {
  std::unique_ptr<exec::KvPool> pool;
  int context_length;  // tokens of one sequence
  int prefix_blocks;   // blocks that finished requests may keep
};

// Blocks for one whole context, a copy of a shared block, and what finished requests may keep.
Result<Memory> TakeMemory(const exec::LoadedModel& model, int context,
                          std::int64_t prefix_cache_bytes) {
  const KvBlocks blocks = CountBlocks(model.config, model.kv_type, context, prefix_cache_bytes);
  if (blocks.prefix > (1 << 24))
    return base::InvalidArgument("prefix_cache_bytes is ", prefix_cache_bytes, ", ", blocks.prefix,
                                 " blocks; at most 16777216 are supported");
  ASSIGN_OR_RETURN(auto pool, exec::KvPool::Create({.config = model.config,
                                                    .blocks = static_cast<int>(blocks.all),
                                                    .type = model.kv_type}));
  return Memory{std::move(pool), context, static_cast<int>(blocks.prefix)};
}

// Tokens of one step whose logits are wanted: a draft and the token before it.
int StepTokens(const EngineConfig& config) {
  return config.spec.mode == "off" ? 1 : kDraftTokensMax + 1;
}

exec::MemoryOptions MemoryOptionsOf(const EngineConfig& config, kernels::KvType kv_type) {
  return {.budget_bytes = config.memory_budget_bytes,
          .ffn_share = config.ffn_memory_share,
          .bundle = config.bundle,
          .context_length = config.context_length,
          .tokens_max = std::max(config.prefill_chunk, StepTokens(config)),
          .logits_max = StepTokens(config),
          .kv_bytes =
              [&config, kv_type](const model::ModelConfig& model) {
                const KvBlocks blocks = CountBlocks(model, kv_type, ContextLength(config, model),
                                                    config.prefix_cache_bytes);
                return static_cast<std::size_t>(blocks.all) *
                       exec::KvPool::BlockBytes(model, kv_type);
              },
          .read_ahead = config.read_ahead};
}

}  // namespace

class Engine::Impl {
 public:
  Impl(std::unique_ptr<exec::LoadedModel> model, Memory memory,
       std::unique_ptr<store::TraceWriter> trace, const EngineConfig& config)
      : model_(std::move(model)),
        pool_(std::move(memory.pool)),
        cache_(*pool_, memory.context_length),
        prefix_blocks_(memory.prefix_blocks),
        prefixes_(*pool_, prefix_blocks_),
        sampler_(model_->config.vocab_size, cache_.capacity()),
        transformer_(model_->MakeTransformer(std::max(config.prefill_chunk, StepTokens(config)),
                                             cache_.capacity(), StepTokens(config))),
        governor_(*model_, *transformer_,
                  {.audit_interval = config.ffn.audit_interval,
                   .controller_recall = config.ffn.controller_recall,
                   .rebalance = config.hot.rebalance}),
        trace_(std::move(trace)),
        on_fatal_(config.on_fatal),
        reader_buffer_tokens_(config.reader_buffer_tokens),
        queue_(std::make_shared<sched::RequestQueue>(sched::RequestQueue::Limits{
            .requests = config.queue_capacity, .tokens = config.queue_prefill_tokens})) {
    const text::Tokenizer& tokenizer = *model_->tokenizer;
    for (int token = 0; token < model_->config.vocab_size; ++token) {
      const bool known = static_cast<std::size_t>(token) < tokenizer.vocabulary().tokens.size();
      if (known && tokenizer.IsStop(token)) stop_tokens_.push_back(token);
    }
    default_breakers_ = text::DryBreakerTokens(tokenizer, text::kDryBreakersDefault);
  }

  // Starts the decode thread. Errors as spec::Speculation::Create.
  Status Start(const EngineConfig& config, spec::LoadedDraft draft) {
    ASSIGN_OR_RETURN(speculation_, spec::Speculation::Create({.options = config.spec,
                                                              .draft = std::move(draft),
                                                              .target = *model_,
                                                              .transformer = *transformer_,
                                                              .cache = cache_,
                                                              .sampler = sampler_}));
    constexpr double kWarmUpS = 0.5;
    const int bos = model_->tokenizer->vocabulary().bos;
    speculation_->WarmUp(std::max(bos, 0), kWarmUpS);
    PublishSpeculation();
    scheduler_ = std::make_unique<sched::Scheduler>(SchedulerParams(config));
    thread_ = std::thread([this] { DecodeMain(); });
    pthread_setname_np(thread_.native_handle(), "decode");
    return OkStatus();
  }

  ~Impl() {
    queue_->Close();
    CancelAll(CancelCause::kShutdown);
    if (thread_.joinable()) thread_.join();
    if (trace_ == nullptr) return;
    const Status written = trace_->Commit();
    if (!written.ok()) base::LogError("the trace: ", written.message());
  }

  void CancelAll(CancelCause cause) { queue_->CancelAll(cause); }

  // Tokens that each prompt of `arrival` is reckoned to have.
  static std::int64_t EstimateTokens(const Arrival& arrival) {
    constexpr std::size_t kBytesPerToken = 4;  // of English text
    return static_cast<std::int64_t>(arrival.prompt_bytes / kBytesPerToken) + 1;
  }

  Status Admit(const Arrival& arrival, std::int64_t tokens) {
    if (!accepting_) return base::Unavailable("the server is shutting down");
    if (arrival.deadline.has_value()) {
      const double allowed = sched::Seconds(*arrival.deadline - sched::SteadyClock::now());
      const double wait = WaitS();
      if (wait > allowed)
        return Status(StatusCode::kDeadlineExceeded,
                      StrCat("the request would wait about ", wait, " s in the queue, and only ",
                             std::max(0.0, allowed), " s are left to its deadline"));
    }
    return queue_->Reserve(arrival.requests, tokens);
  }
  void Unreserve(int requests, std::int64_t tokens) { queue_->Unreserve(requests, tokens); }
  void SetQueueLimits(int requests, std::int64_t tokens) {
    queue_->SetLimits({.requests = requests, .tokens = tokens});
  }
  double RetryAfterS() const { return scheduler_->RetryAfterS(queue_->counts()); }
  double WaitS() const { return scheduler_->WaitS(queue_->counts()); }

  // In a place of `reserved` prompt tokens; none: takes one.
  Result<std::shared_ptr<TokenChannel>> Submit(Request request, std::function<void()> on_ready,
                                               std::optional<std::int64_t> reserved) {
    RETURN_IF_ERROR(ValidateRequest(request, cache_.capacity(), model_->config.vocab_size));
    const auto modes = model_->ModesFor(request.ffn_mode);
    if (!modes.ok()) return modes.status().Annotate("ffn_mode");
    RETURN_IF_ERROR(CheckSpeculation(request));
    if (!accepting_) return base::Unavailable("the server is shutting down");
    const auto tokens = static_cast<std::int64_t>(request.prompt.size());
    if (!reserved.has_value()) RETURN_IF_ERROR(queue_->Reserve(1, tokens));
    Complete(request);
    auto channel = std::make_shared<TokenChannel>(std::move(on_ready), reader_buffer_tokens_);
    // The channel may outlive the engine.
    channel->SetOnRoom([queue = queue_, self = channel.get()] { queue->OnNews(*self); });
    queue_->Push(
        {.request = std::move(request), .channel = channel, .submitted = sched::SteadyClock::now()},
        reserved.value_or(tokens));
    return channel;
  }

  void StopAccepting() { accepting_ = false; }
  const text::Tokenizer& tokenizer() const { return *model_->tokenizer; }
  void FreezeController(bool frozen) { governor_.Freeze(frozen); }

  EngineStats Stats() const {
    const sched::RequestQueue::Counts queued = queue_->counts();
    const sched::RequestQueue::Limits limits = queue_->limits();
    return {.model_path = model_->path,
            .model_format = model_->format,
            .architecture = std::string(model_->config.architecture->name),
            .cpu_isa = model_->ops->name,
            .context_length = cache_.capacity(),
            .threads = model_->pool->threads() + model_->hot_threads,
            .running = scheduler_->figures().begun,
            .paused = scheduler_->figures().paused,
            .waiting = queued.waiting,
            .queue_capacity = limits.requests,
            .queue_prefill_tokens = queued.tokens,
            .queue_prefill_tokens_max = limits.tokens,
            .preemptions = scheduler_->figures().preemptions,
            .recomputed_tokens = steps_.recomputed_tokens,
            .kv_used_bytes = scheduler_->figures().blocks_used * pool_->block_bytes(),
            .num_parameters = model_->config.num_parameters(),
            .weight_bytes = model_->weights->memory.size(),
            .bytes_per_token = model_->weights->bytes_per_token(),
            .kv_bytes = pool_->bytes(),
            .kv_bytes_per_token = pool_->block_bytes() / kernels::kKvBlock,
            .kv_type = exec::KvTypeName(pool_->type()),
            .load_s = model_->load_s,
            .prefix_cache = PrefixStats(),
            .ffn_automatic = model_->ffn_automatic,
            .predictor_bytes = model_->predictors->bytes,
            .side_car = model_->side_car_path,
            .ffn = governor_.Stats(),
            .flash = FlashStats(),
            .hot = governor_.Hot(),
            .spec = Speculation(),
            .memory_budget = model_->memory.budget,
            .memory_planned = model_->memory.total(),
            .steps = steps_.Read(),
            .heartbeat = heartbeat_.load(std::memory_order_relaxed)};
  }

 private:
  void DecodeMain() {
    transformer_->ffn().SetTrace(trace_.get());
    scheduler_->Run();
  }

  sched::Scheduler::Params SchedulerParams(const EngineConfig& config) {
    return {.loop = {.transformer = *transformer_,
                     .cache = cache_,
                     .prefixes = &prefixes_,
                     .sampler = sampler_,
                     .decoder = speculation_->decoder(),
                     .spec_mode = speculation_->mode(),
                     .spec_tokens = speculation_->tokens_max(),
                     .governor = governor_,
                     .tokenizer = *model_->tokenizer,
                     .logits_max = StepTokens(config),
                     .heartbeat = &heartbeat_,
                     .steps = &steps_,
                     .on_end = [this] { PublishSpeculation(); }},
            .queue = *queue_,
            .pool = *pool_,
            .model = *model_,
            .quantum_tokens = config.quantum_tokens,
            .sequences_max = config.sequences_max,
            .reader_timeout_s = config.reader_timeout_s,
            .on_idle = [this] { governor_.Idle(); },
            .on_turn = [this] { AfterTurn(); }};
  }

  void AfterTurn() {
    if (on_fatal_ && transformer_->device() != nullptr && transformer_->device()->dead())
      std::exchange(on_fatal_, {})();
  }

  // What the sampler needs to know of the model.
  void Complete(Request& request) const {
    SamplingParams& sampling = request.sampling;
    if (sampling.dry_multiplier > 0) {
      sampling.dry_breakers = request.dry_breakers.has_value()
                                  ? text::DryBreakerTokens(tokenizer(), *request.dry_breakers)
                                  : default_breakers_;
    }
    if (sampling.min_tokens == 0) return;
    sampling.end_tokens = request.stop_tokens;
    if (!request.ignore_eos)
      sampling.end_tokens.insert(sampling.end_tokens.end(), stop_tokens_.begin(),
                                 stop_tokens_.end());
  }

  Status CheckSpeculation(const Request& request) const {
    if (!request.spec_mode.empty()) {
      const auto mode = spec::ParseMode(request.spec_mode);
      if (!mode.ok()) return mode.status();
      if (*mode != SpecMode::kOff && speculation_->mode() == SpecMode::kOff)
        return base::FailedPrecondition("spec.mode '", request.spec_mode,
                                        "': the model was loaded with spec.mode off");
    }
    if (request.spec_tokens > kDraftTokensMax)
      return base::InvalidArgument("draft_tokens is ", request.spec_tokens,
                                   "; a draft has at most ", kDraftTokensMax, " tokens");
    return OkStatus();
  }

  // Decode thread: what others may read from now on.
  void PublishSpeculation() {
    SpecStats stats = speculation_->Stats();
    const std::lock_guard lock(spec_mutex_);
    spec_stats_ = std::move(stats);
  }

  SpecStats Speculation() const {
    const std::lock_guard lock(spec_mutex_);
    return spec_stats_;
  }

  EngineStats::Flash FlashStats() const {
    if (model_->memory.tier == exec::MemoryPlan::Tier::kMemory) return {};
    const store::BlockReader& reader =
        model_->flash != nullptr ? model_->flash->reader() : model_->stream->reader();
    return {.used = true,
            .bundle = reader.path(),
            .method = reader.method(),
            .layers = model_->stream != nullptr,
            .cache_bytes =
                model_->flash != nullptr ? model_->flash->slots() * model_->flash->slot_bytes() : 0,
            .counters = governor_.Flash()};
  }

  EngineStats::PrefixCache PrefixStats() const {
    const exec::PrefixCacheCounters& c = prefixes_.counters();
    const auto block_bytes = static_cast<std::int64_t>(pool_->block_bytes());
    return {.hits = c.hits,
            .partial = c.partial,
            .misses = c.misses,
            .hit_tokens = c.hit_tokens,
            .new_tokens = c.new_tokens,
            .evicted_tokens = c.evicted_tokens,
            .evictions = c.evictions,
            .bytes = c.blocks * block_bytes,
            .bytes_max = prefix_blocks_ * block_bytes};
  }

  const std::unique_ptr<exec::LoadedModel> model_;
  const std::unique_ptr<exec::KvPool> pool_;  // decode thread
  exec::KvCache cache_;                       // decode thread
  const int prefix_blocks_;
  exec::PrefixCache prefixes_;                            // decode thread, but for its counters
  exec::Sampler sampler_;                                 // decode thread
  const std::unique_ptr<exec::Transformer> transformer_;  // decode thread
  exec::FfnGovernor governor_;                            // decode thread, but for its figures
  std::unique_ptr<spec::Speculation> speculation_;        // decode thread
  mutable std::mutex spec_mutex_;
  SpecStats spec_stats_;                             // guarded by spec_mutex_
  const std::unique_ptr<store::TraceWriter> trace_;  // decode thread
  std::function<void()> on_fatal_;                   // decode thread
  const int reader_buffer_tokens_;
  std::vector<int> stop_tokens_;                      // the model's own
  std::vector<int> default_breakers_;                 // of DRY's repetitions, ascending
  const std::shared_ptr<sched::RequestQueue> queue_;  // shared with the channels
  std::unique_ptr<sched::Scheduler> scheduler_;       // decode thread, but for its figures
  sched::StepCounters steps_;
  std::atomic<bool> accepting_{true};
  std::atomic<std::int64_t> heartbeat_{0};
  std::thread thread_;  // starts when all else is there
};

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::~Engine() = default;

Result<std::unique_ptr<Engine>> Engine::Load(const EngineConfig& config) {
  if (config.queue_capacity < 1)
    return base::InvalidArgument("queue_capacity is ", config.queue_capacity,
                                 "; it must be at least 1");
  if (config.sequences_max < 1)
    return base::InvalidArgument("sequences_max is ", config.sequences_max,
                                 "; it must be at least 1");
  if (config.prefill_chunk < 1)
    return base::InvalidArgument("prefill_chunk is ", config.prefill_chunk,
                                 "; it must be at least 1");
  ASSIGN_OR_RETURN(const kernels::KvType kv_type, exec::ParseKvType(config.kv_type));
  RETURN_IF_ERROR(spec::Validate(config.spec));
  exec::LoadOptions load;
  load.model = config.model;
  load.threads = config.threads;
  load.cpu_isa = config.cpu_isa;
  load.activation = config.activation;
  load.kv_type = kv_type;
  load.verify = config.verify;
  load.quantize_head = config.quantize_head;
  load.ffn = config.ffn;
  load.memory = MemoryOptionsOf(config, kv_type);
  load.hot = config.hot;
  load.device_ops = config.device_ops;
  load.fingerprint = !config.record_trace.empty();
  load.on_progress = config.on_progress;
  // The draft first: what it takes, the target may not.
  ASSIGN_OR_RETURN(spec::LoadedDraft draft, spec::LoadDraft(config.spec, load));
  if (draft.model != nullptr && load.memory.budget_bytes > 0) {
    const auto acceptance = config.spec.acceptance == "rejection" ? spec::Acceptance::kRejection
                                                                  : spec::Acceptance::kSameText;
    const std::size_t taken = draft.model->memory.total() +
                              spec::DistributionBytes(acceptance, draft.model->config.vocab_size);
    load.memory.budget_bytes =
        std::max<std::int64_t>(1, load.memory.budget_bytes - static_cast<std::int64_t>(taken));
  }
  spec::AskOfTarget(config.spec, load);
  auto loaded = exec::LoadModel(load);
  if (!loaded.ok() && config.spec.source == "self" && config.spec.mode != "off")
    return loaded.status().Annotate("with spec.source self, which needs a predictor");
  if (!loaded.ok()) return loaded.status();
  std::unique_ptr<exec::LoadedModel> model = *std::move(loaded);
  if (model->tokenizer == nullptr)
    return base::FailedPrecondition(model->path, ": the model file holds no tokenizer");
  if (!config.record_trace.empty() && (model->split != nullptr || model->device != nullptr)) {
    return base::InvalidArgument(
        "a trace can be recorded where one side computes all neurons: leave out the hot tier "
        "(device cpu, no memory for it), or the trace");
  }
  const int model_context = model->config.max_position_embeddings;
  const int context = ContextLength(config, model->config);
  if (context > model_context) {
    return base::InvalidArgument("context_length is ", context, ", but the model was made for ",
                                 model_context);
  }
  ASSIGN_OR_RETURN(Memory memory, TakeMemory(*model, context, config.prefix_cache_bytes));
  std::unique_ptr<store::TraceWriter> trace;
  if (!config.record_trace.empty()) {
    ASSIGN_OR_RETURN(trace, store::TraceWriter::Create(config.record_trace, model->trace_shape()));
  }
  auto impl = std::make_unique<Impl>(std::move(model), std::move(memory), std::move(trace), config);
  RETURN_IF_ERROR(impl->Start(config, std::move(draft)));
  return std::unique_ptr<Engine>(new Engine(std::move(impl)));
}

Result<std::shared_ptr<TokenChannel>> Engine::Submit(Request request,
                                                     std::function<void()> on_ready,
                                                     Admission* admission) {
  const bool reserved = admission != nullptr && admission->requests_ > 0;
  auto channel = impl_->Submit(std::move(request), std::move(on_ready),
                               reserved ? std::optional(admission->tokens_) : std::nullopt);
  if (channel.ok() && reserved) --admission->requests_;
  return channel;
}

Result<Engine::Admission> Engine::Admit(const Arrival& arrival) {
  const std::int64_t tokens = Impl::EstimateTokens(arrival);
  RETURN_IF_ERROR(impl_->Admit(arrival, tokens));
  Admission admission;
  admission.engine_ = this;
  admission.requests_ = arrival.requests;
  admission.tokens_ = tokens;
  return admission;
}

void Engine::Admission::Release() {
  if (engine_ != nullptr && requests_ > 0) engine_->impl_->Unreserve(requests_, tokens_);
  requests_ = 0;
}

Engine::Admission& Engine::Admission::operator=(Admission&& other) noexcept {
  if (this == &other) return *this;
  Release();
  engine_ = std::exchange(other.engine_, nullptr);
  requests_ = std::exchange(other.requests_, 0);
  tokens_ = other.tokens_;
  return *this;
}

void Engine::SetQueueLimits(int requests, std::int64_t prefill_tokens) {
  impl_->SetQueueLimits(requests, prefill_tokens);
}
double Engine::RetryAfterS() const { return impl_->RetryAfterS(); }
double Engine::WaitS() const { return impl_->WaitS(); }
void Engine::FreezeController(bool frozen) { impl_->FreezeController(frozen); }
void Engine::StopAccepting() { impl_->StopAccepting(); }
void Engine::CancelAll(CancelCause cause) { impl_->CancelAll(cause); }
const text::Tokenizer& Engine::tokenizer() const { return impl_->tokenizer(); }
EngineStats Engine::Stats() const { return impl_->Stats(); }

}  // namespace thermocline
