#include "server/grpc/messages.h"

#include <ctime>

namespace thermocline::rpc {
namespace {

using server::ServiceState;

void FillLogprob(const text::Tokenizer& tokenizer, const TokenChannel::Score& score,
                 v1::TokenLogprob& out) {
  out.set_token_id(score.token);
  out.set_token(tokenizer.TokenBytes(score.token, true));
  out.set_logprob(score.logprob);
}

v1::State StateOf(ServiceState state) {
  switch (state) {
    case ServiceState::kSleeping:
    case ServiceState::kLoading:
      return v1::STATE_LOADING;
    case ServiceState::kReady:
      return v1::STATE_READY;
    case ServiceState::kDraining:
      return v1::STATE_DRAINING;
    case ServiceState::kFailed:
      break;
  }
  return v1::STATE_FAILED;
}

void FillQueue(const Engine& engine, const EngineStats& stats, v1::Queue& out) {
  out.set_running(stats.running);
  out.set_paused(stats.paused);
  out.set_waiting(stats.waiting);
  out.set_capacity(stats.queue_capacity);
  out.set_prefill_tokens(stats.queue_prefill_tokens);
  out.set_prefill_tokens_limit(stats.queue_prefill_tokens_max);
  out.set_estimated_wait_s(engine.WaitS());
  out.set_preemptions(stats.preemptions);
}

void FillCache(const EngineStats& stats, v1::Cache& out) {
  out.set_kv_bytes(stats.kv_bytes);
  out.set_kv_used_bytes(stats.kv_used_bytes);
  out.set_prefix_bytes(stats.prefix_cache.bytes);
  out.set_prefix_bytes_limit(stats.prefix_cache.bytes_max);
  out.set_prefix_hit_tokens(stats.prefix_cache.hit_tokens);
  out.set_prefix_new_tokens(stats.prefix_cache.new_tokens);
}

void FillSpeculation(const SpecStats& stats, v1::SpeculationTotals& out) {
  out.set_mode(stats.mode);
  out.set_source(stats.source);
  out.set_drafts(stats.drafts);
  out.set_draft_tokens(stats.draft_tokens);
  out.set_accepted_tokens(stats.accepted_tokens);
}

}  // namespace

void FillDelta(const text::Tokenizer& tokenizer, const DeltaOptions& options,
               const TokenChannel::Update& update, v1::Delta& out) {
  out.set_text(update.text);
  if (options.token_ids) out.mutable_token_ids()->Add(update.tokens.begin(), update.tokens.end());
  if (options.logprobs < 0) return;
  const std::size_t width = options.logprobs + 1;
  for (std::size_t i = 0; i + width <= update.scores.size(); i += width) {
    v1::TokenScores& scores = *out.add_logprobs();
    FillLogprob(tokenizer, update.scores[i], *scores.mutable_token());
    for (std::size_t k = 1; k < width; ++k)
      FillLogprob(tokenizer, update.scores[i + k], *scores.add_top());
  }
}

namespace {

v1::FinishReason ToProto(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return v1::FINISH_REASON_STOP;
    case FinishReason::kLength:
      return v1::FINISH_REASON_LENGTH;
    case FinishReason::kNone:
    case FinishReason::kCancelled:
    case FinishReason::kError:
      break;  // these reasons end the call with a status
  }
  return v1::FINISH_REASON_UNSPECIFIED;
}

}  // namespace

void FillFinished(const TokenChannel::Update& update, bool speculated, v1::Finished& out) {
  const Usage& usage = update.usage;
  out.set_finish_reason(ToProto(update.reason));
  out.mutable_usage()->set_prompt_tokens(usage.prompt_tokens);
  out.mutable_usage()->set_cached_tokens(usage.cached_tokens);
  out.mutable_usage()->set_completion_tokens(usage.completion_tokens);
  v1::Timings& timings = *out.mutable_timings();
  timings.set_queue_s(usage.queue_s);
  timings.set_prefill_s(usage.prefill_s);
  timings.set_decode_s(usage.decode_s);
  timings.set_preemptions(usage.preemptions);
  if (usage.energy_j > 0) timings.set_energy_j(usage.energy_j);
  if (!speculated) return;
  v1::SpeculationFigures& figures = *out.mutable_speculation();
  figures.set_drafts(usage.spec.drafts);
  figures.set_draft_tokens(usage.spec.draft_tokens);
  figures.set_accepted_tokens(usage.spec.accepted_tokens);
  figures.set_branch_hits(usage.spec.branch_hits);
  figures.set_branch_misses(usage.spec.branch_misses);
  figures.set_wait_s(usage.spec.wait_s);
}

void FillModel(const server::Service& service, v1::Model& out) {
  const EngineStats stats = service.engine()->Stats();
  const text::Tokenizer& tokenizer = service.engine()->tokenizer();
  out.set_name(service.model_name());
  out.set_architecture(stats.architecture);
  out.set_format(stats.model_format);
  out.set_context_length(stats.context_length);
  out.set_vocabulary_size(tokenizer.vocabulary().size());
  out.set_num_parameters(stats.num_parameters);
  out.set_weight_bytes(stats.weight_bytes);
  out.set_kv_type(stats.kv_type);
  out.set_has_chat_template(service.chat() != nullptr);
  for (int token = 0; token < tokenizer.vocabulary().size(); ++token)
    if (tokenizer.IsStop(token)) out.add_stop_token_ids(token);
  out.set_created(service.started_at());
}

void FillStats(const server::Service& service, v1::Stats& out) {
  out.set_state(StateOf(service.state()));
  out.set_load_progress(service.engine() == nullptr ? service.load_progress() : 1);
  out.set_uptime_s(std::time(nullptr) - service.started_at());
  const Engine* engine = service.engine();
  if (engine == nullptr) return;
  const EngineStats stats = engine->Stats();
  FillQueue(*engine, stats, *out.mutable_queue());
  FillCache(stats, *out.mutable_cache());
  if (stats.spec.used) FillSpeculation(stats.spec, *out.mutable_speculation());
}

}  // namespace thermocline::rpc
