#include "engine/engine_impl.h"

#include <pthread.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/base/log.h"
#include "engine/base/thread_priority.h"
#include "engine/request_validation.h"

namespace thermocline {
namespace {

Status ShuttingDown() {
  return base::Unavailable("the server is shutting down").WithReason(Reason::kDraining);
}

}  // namespace

Engine::Impl::Impl(EngineParts& parts, const EngineConfig& config)
    : model_(std::move(parts.model)),
      pool_(std::move(parts.kv.pool)),
      cache_(*pool_, parts.kv.context_length),
      prefix_blocks_(parts.kv.prefix_blocks),
      prefixes_(*pool_, prefix_blocks_),
      flash_prefixes_(std::move(parts.flash_prefixes)),
      sampler_(model_->config.vocab_size, cache_.capacity()),
      transformer_(model_->MakeTransformer(model_->step_tokens_max, cache_.capacity(),
                                           StepLogitsMax(config))),
      governor_(*model_, *transformer_,
                {.audit_interval = config.model.ffn.audit_interval,
                 .shadow = model_->audit_shadow,
                 .controller_recall = config.model.ffn.controller_recall}),
      trace_(std::move(parts.trace)),
      on_fatal_(config.on_fatal),
      reader_buffer_tokens_(config.serving.reader_buffer_tokens),
      grammars_(tokenizer(), model_->config.vocab_size, GrammarLimitsOf(config, *model_)),
      breakers_(tokenizer()),
      default_breakers_(text::DryBreakerTokens(tokenizer(), text::kDryBreakersDefault)),
      queue_(std::make_shared<sched::RequestQueue>(
          sched::RequestQueue::Limits{.requests = config.serving.queue_capacity,
                                      .tokens = config.serving.queue_prefill_tokens})) {
  const text::Tokenizer& tokenizer = *model_->tokenizer;
  for (int token = 0; token < model_->config.vocab_size; ++token) {
    const bool known = static_cast<std::size_t>(token) < tokenizer.vocabulary().tokens.size();
    if (known && tokenizer.IsStop(token)) stop_tokens_.push_back(token);
  }
}

Status Engine::Impl::Start(const EngineConfig& config, spec::LoadedDraft draft) {
  ASSIGN_OR_RETURN(speculation_, spec::Speculation::Create({.options = config.model.spec,
                                                            .draft = std::move(draft),
                                                            .target = *model_,
                                                            .transformer = *transformer_,
                                                            .cache = cache_,
                                                            .sampler = sampler_}));
  if (writes()) WarmUpSpeculation(config.measured.get());
  PublishSpeculation();
  if (config.serving.log_prefix_differences)
    base::LogWarning("prefix_cache.log_differences: parts of prompts are written to the log");
  answers_ = std::make_unique<sched::AnswerSteps>(
      sched::AnswerSteps::Params{.prefixes = &prefixes_,
                                 .flash = flash_prefixes_.get(),
                                 .tokenizer = *model_->tokenizer,
                                 .capacity = cache_.capacity(),
                                 .logits_max = StepLogitsMax(config),
                                 .heartbeat = &heartbeat_,
                                 .steps = &steps_,
                                 .on_end =
                                     [this] {
                                       PublishSpeculation();
                                       governor_.EndRequest();
                                     },
                                 .log_differences = config.serving.log_prefix_differences});
  shared_ = std::make_unique<sched::SharedLoop>(
      sched::SharedLoop::Params{.transformer = *transformer_,
                                .pool = *model_->pool,
                                .answers = *answers_,
                                .governor = governor_,
                                .capacity = cache_.capacity(),
                                .drafts_max = SharedDraftsMax(config)});
  scheduler_ = std::make_unique<sched::Scheduler>(SchedulerParams(config));
  thread_ = std::thread([this] { DecodeMain(); });
  pthread_setname_np(thread_.native_handle(), "decode");
  return OkStatus();
}

void Engine::Impl::WarmUpSpeculation(const EngineMeasurements* known) {
  constexpr double kWarmUpS = 0.5;
  const int token = std::max(model_->tokenizer->vocabulary().bos, 0);
  const bool in_memory = model_->flash == nullptr && model_->stream == nullptr;
  transformer_->ffn().SetCounting(false);
  if (known != nullptr && in_memory) {
    speculation_->WarmUp(token, kWarmUpS, known->step_times);
  } else {
    speculation_->WarmUp(token, kWarmUpS);
  }
  transformer_->ffn().SetCounting(true);
  const auto times = speculation_->step_times();
  if (in_memory && times.has_value())
    measured_ = std::make_shared<EngineMeasurements>(EngineMeasurements{*times});
}

Engine::Impl::~Impl() {
  queue_->Close();
  CancelAll(CancelCause::kShutdown);
  if (thread_.joinable()) thread_.join();
  if (trace_ == nullptr) return;
  const Status written = trace_->Commit();
  if (!written.ok()) base::LogError("the trace: ", written.message());
}

void Engine::Impl::DecodeMain() {
  base::AskForShortTurns();  // all requests wait for this thread
  transformer_->ffn().SetTrace(trace_.get());
  scheduler_->Run();
}

// Only one sequence at a time can use a draft model: when several share steps, only n-gram drafts
// from their own texts are used.
int Engine::Impl::SharedDraftsMax(const EngineConfig& config) const {
  const SpecOptions& spec = config.model.spec;
  const bool text = spec.mode != SpecMode::kOff && spec.chosen_source() == SpecSource::kNgram;
  return text ? std::min(spec.tokens_max, kSparseDraftTokensMax) : 0;
}

// Sequences take turns while a trace is recorded, because it records single tokens.
int Engine::Impl::StepTokens(const EngineConfig& config) const {
  if (trace_ != nullptr || config.serving.quantum_tokens == 0) return 1;
  return std::min(config.serving.step_tokens, StepLogitsMax(config));
}

sched::Scheduler::Params Engine::Impl::SchedulerParams(const EngineConfig& config) {
  constexpr int kPrefillTokens = 64;  // of a shared step, unless prefill_chunk is set
  const int chunk = model_->step_tokens_max;
  const SpecOptions& spec = config.model.spec;
  return {
      .loop = {.transformer = *transformer_,
               .cache = cache_,
               .answers = *answers_,
               .sampler = sampler_,
               .decoder = speculation_->decoder(),
               .spec_mode = speculation_->mode(),
               .spec_tokens = speculation_->tokens_max(),
               .governor = governor_,
               .logits_max = StepLogitsMax(config),
               .short_steps = config.serving.prefill_chunk == 0},
      .shared = *shared_,
      .step_tokens = StepTokens(config),
      .mixes = model_->flash == nullptr,
      .prefill_tokens_max =
          config.serving.prefill_chunk > 0 ? chunk : std::min(chunk, kPrefillTokens),
      .parts_max = transformer_->parts_max(),
      .drafts = model_->flash == nullptr,
      .drafts_decide = spec.mode != SpecMode::kOff && spec.acceptance == SpecAcceptance::kRejection,
      .itl_target_s = config.serving.itl_target_ms / 1000,
      .queue = *queue_,
      .pool = *pool_,
      .model = *model_,
      .quantum_tokens = config.serving.quantum_tokens,
      .sequences_max = config.serving.sequences_max,
      .reader_timeout_s = config.serving.reader_timeout_s,
      .on_idle = [this] { governor_.Idle(); },
      .on_turn = [this] { AfterTurn(); }};
}

void Engine::Impl::AfterTurn() {
  if (on_fatal_ && transformer_->device() != nullptr && transformer_->device()->dead())
    std::exchange(on_fatal_, {})();
}

void Engine::Impl::PublishSpeculation() {
  SpecStats stats = speculation_->Stats();
  if (shared_ != nullptr) {
    const SpecUsage& drafted = shared_->drafted();
    stats.drafts += drafted.drafts;
    stats.draft_tokens += drafted.draft_tokens;
    stats.accepted_tokens += drafted.accepted_tokens;
    stats.drafted_tokens += drafted.draft_tokens;
    stats.wasted_tokens += drafted.draft_tokens - drafted.accepted_tokens;
  }
  const base::MutexLock lock(spec_mutex_);
  spec_stats_ = std::move(stats);
}

std::int64_t Engine::Impl::EstimateTokens(const Arrival& arrival) const {
  constexpr std::size_t kBytesPerToken = 4;  // of English text
  const auto tokens = static_cast<std::int64_t>(arrival.prompt_bytes / kBytesPerToken) + 1;
  return std::min<std::int64_t>(tokens, cache_.capacity());
}

Status Engine::Impl::Admit(const Arrival& arrival, std::int64_t tokens) {
  if (!accepting_) return ShuttingDown();
  const int capacity = queue_->limits().requests;
  if (arrival.requests > capacity)  // waiting would not help
    return base::InvalidArgument("prompts times n is ", arrival.requests,
                                 ", but the queue takes at most ", capacity,
                                 " (engine.queue_capacity)")
        .WithField("n");
  RETURN_IF_ERROR(CheckDeadline(arrival));
  return queue_->Reserve(arrival.requests, tokens, arrival.tenant);
}

Status Engine::Impl::CheckDeadline(const Arrival& arrival) const {
  if (!arrival.deadline.has_value()) return OkStatus();
  const double left = sched::Seconds(*arrival.deadline - sched::SteadyClock::now());
  if (left <= 0) return base::DeadlineExceeded("the request's deadline is over");
  const double wait = scheduler_->WaitS(queue_->counts(), !queue_->HasTenant(arrival.tenant));
  if (wait <= left) return OkStatus();
  const auto rounded = [](double seconds) { return std::round(seconds * 100) / 100; };
  return base::DeadlineExceeded("the request would wait about ", rounded(wait),
                                " s in the queue, and only ", rounded(left),
                                " s are left to its deadline");
}

Result<std::shared_ptr<TokenChannel>> Engine::Impl::Submit(Request request,
                                                           std::function<void()> on_ready,
                                                           std::optional<std::int64_t> reserved) {
  RETURN_IF_ERROR(ValidateRequest(
      request, {.context_length = cache_.capacity(), .vocab_size = model_->config.vocab_size}));
  if (!request.embed.has_value() && !writes())
    return base::FailedPrecondition(
        "this model is an encoder: it makes vectors of texts (/v1/embeddings, /v1/rerank, "
        "/api/embed) and writes none");
  if (request.embed.has_value() && transformer_->device() != nullptr)
    return base::FailedPrecondition(
        "embeddings need the hidden states, which a GPU keeps; serve them with hot.device: cpu");
  RETURN_IF_ERROR(CompleteAdapters(request));
  RETURN_IF_ERROR(
      model_->ModesFor(request.ffn_mode, request.kl_max, *request.adapter_scales).status());
  RETURN_IF_ERROR(ValidateSpeculation(request, speculation_->mode(), speculation_->not_ahead()));
  if (!accepting_) return ShuttingDown();
  const std::int64_t tokens = request.prompt.size();
  if (!reserved.has_value()) RETURN_IF_ERROR(queue_->Reserve(1, tokens, request.tenant));
  Complete(request);
  auto channel = std::make_shared<TokenChannel>(std::move(on_ready), reader_buffer_tokens_);
  // The channel may outlive the engine.
  channel->SetOnRoom([queue = queue_, self = channel.get()] { queue->NotifyScheduler(*self); });
  queue_->Push(
      {.request = std::move(request), .channel = channel, .submitted = sched::SteadyClock::now()},
      reserved.value_or(tokens));
  return channel;
}

std::vector<AdapterChoice> Engine::Impl::adapters() const {
  std::vector<AdapterChoice> all;
  if (model_->adapters == nullptr) return all;
  for (const load::LoadedAdapter& each : model_->adapters->list)
    all.push_back({.name = each.name, .path = each.path, .scale = each.scale});
  return all;
}

// Keys and values depend on the adapters, so requests share prefixes only with the same ones.
Status Engine::Impl::CompleteAdapters(Request& request) const {
  const load::Adapters* all = model_->adapters.get();
  const std::size_t count = all == nullptr ? 0 : all->list.size();
  if (!request.adapter_scales.has_value())
    request.adapter_scales = all == nullptr ? std::vector<float>{} : all->defaults();
  if (request.adapter_scales->size() != count)
    return base::InvalidArgument("factors of ", request.adapter_scales->size(),
                                 " LoRA adapters, and the model has ", count);
  for (std::size_t i = 0; i < count; ++i) {
    const float scale = (*request.adapter_scales)[i];
    if (!(std::abs(scale) <= kAdapterScaleMax))
      return base::InvalidArgument("the scale ", scale, " of a LoRA adapter is not within ",
                                   -kAdapterScaleMax, " and ", kAdapterScaleMax);
    if (scale != 0) request.prefix_owner += StrCat("\nlora ", all->list[i].hash, " ", scale);
  }
  return OkStatus();
}

void Engine::Impl::Complete(Request& request) {
  SamplingParams& sampling = request.sampling;
  if (sampling.dry_multiplier > 0) {
    sampling.dry_breakers = request.dry_breakers.has_value()
                                ? *breakers_.Find(*request.dry_breakers)
                                : default_breakers_;
  }
  if (sampling.min_tokens == 0) return;
  sampling.end_tokens = request.stop_tokens;
  if (!request.ignore_eos)
    sampling.end_tokens.insert(sampling.end_tokens.end(), stop_tokens_.begin(), stop_tokens_.end());
}

}  // namespace thermocline
