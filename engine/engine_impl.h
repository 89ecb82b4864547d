// The implementation of Engine: puts requests into the queue, and runs the decode thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "engine/base/mutex.h"
#include "engine/engine.h"
#include "engine/engine_parts.h"
#include "engine/grammar/grammar_compiler.h"
#include "engine/sched/scheduler.h"
#include "engine/text/dry_breakers.h"

namespace thermocline {

struct EngineMeasurements {
  spec::StepTimes step_times;  // with all weights in memory
};

// Thread-safe to the same extent as Engine.
class Engine::Impl {
 public:
  // Takes all of `parts` except the draft, which Start takes.
  Impl(EngineParts& parts, const EngineConfig& config);
  ~Impl();

  // Starts the decode thread. Errors as spec::Speculation::Create.
  Status Start(const EngineConfig& config, spec::LoadedDraft draft);

  // Estimated tokens of each prompt of `arrival`, at most the context: a longer prompt is rejected
  // after tokenization, and must not block other requests until then.
  std::int64_t EstimateTokens(const Arrival& arrival) const;
  // As Engine::Admit, with `tokens` per prompt; Unreserve releases the places.
  Status Admit(const Arrival& arrival, std::int64_t tokens);
  // DeadlineExceeded if the deadline would pass in the queue.
  Status CheckDeadline(const Arrival& arrival) const;
  void Unreserve(int requests, std::int64_t tokens, const std::string& tenant) {
    queue_->Unreserve(requests, tokens, tenant);
  }
  // As Engine::Submit, in a place with `reserved` prompt tokens; nullopt: takes a new place.
  Result<std::shared_ptr<TokenChannel>> Submit(Request request, std::function<void()> on_ready,
                                               std::optional<std::int64_t> reserved);

  Result<std::shared_ptr<const grammar::CompiledGrammar>> Compile(const GrammarSpec& spec) {
    return grammars_.Compile(spec);
  }
  std::shared_ptr<const grammar::CompiledGrammar> FindCompiled(const GrammarSpec& spec) {
    return grammars_.FindCompiled(spec);
  }
  void SetQueueLimits(int requests, std::int64_t tokens) {
    queue_->SetLimits({.requests = requests, .tokens = tokens});
  }
  double RetryAfterS() const { return scheduler_->RetryAfterS(queue_->counts()); }
  double WaitS() const { return scheduler_->WaitS(queue_->counts(), false); }
  void FreezeController(bool frozen) { governor_.Freeze(frozen); }
  void StopAccepting() { accepting_ = false; }
  void CancelAll(CancelCause cause) { queue_->CancelAll(cause); }
  const SamplingDefaults& sampling() const { return model_->sampling; }
  std::vector<AdapterChoice> adapters() const;
  std::shared_ptr<const EngineMeasurements> measurements() const { return measured_; }
  bool writes() const { return !model_->config.architecture->encoder; }
  Pooling pooling() const {
    const int type = model_->config.pooling_type;
    if (model_->config.ranks()) return Pooling::kRank;
    return type == 2 ? Pooling::kFirst : type == 3 ? Pooling::kLast : Pooling::kMean;
  }
  const text::Tokenizer& tokenizer() const { return *model_->tokenizer; }
  // In engine_stats.cc.
  EngineStats Stats() const;

 private:
  sched::Scheduler::Params SchedulerParams(const EngineConfig& config);
  int StepTokens(const EngineConfig& config) const;
  int SharedDraftsMax(const EngineConfig& config) const;
  // Decode thread:
  void DecodeMain();
  void AfterTurn();
  // Measures steps, unless an earlier engine has (nullptr: none).
  void WarmUpSpeculation(const EngineMeasurements* known);
  // Decode thread: publishes the counters of speculation for other threads.
  void PublishSpeculation();

  // Fills in the model's data that the sampler needs.
  Status CompleteAdapters(Request& request) const;
  void Complete(Request& request);

  EngineStats::PrefixCache PrefixStats() const;
  EngineStats::PrefixFlash PrefixFlashStats() const;
  EngineStats::Flash FlashStats() const;
  SpecStats Speculation() const;

  const std::unique_ptr<load::LoadedModel> model_;
  const std::unique_ptr<nn::KvPool> pool_;  // decode thread
  nn::KvCache cache_;                       // decode thread
  const nn::KvCount prefix_blocks_;
  nn::PrefixCache prefixes_;  // decode thread, except its counters
  // Decode thread, except its counters; null: there is no tier on flash.
  const std::unique_ptr<prefix::FlashPrefixes> flash_prefixes_;
  sampling::Sampler sampler_;                             // decode thread
  const std::unique_ptr<exec::Transformer> transformer_;  // decode thread
  adapt::FfnGovernor governor_;                           // decode thread, except its figures
  std::unique_ptr<spec::Speculation> speculation_;        // decode thread
  std::shared_ptr<const EngineMeasurements> measured_;    // set by Start
  mutable base::Mutex spec_mutex_;
  SpecStats spec_stats_ GUARDED_BY(spec_mutex_);
  const std::unique_ptr<store::TraceWriter> trace_;  // decode thread
  std::function<void()> on_fatal_;                   // decode thread
  const int reader_buffer_tokens_;
  std::vector<int> stop_tokens_;  // the model's own
  grammar::GrammarCompiler grammars_;
  text::DryBreakers breakers_;                        // for strings that clients name
  const std::vector<int> default_breakers_;           // DRY's default breakers, ascending
  const std::shared_ptr<sched::RequestQueue> queue_;  // shared with the channels
  std::unique_ptr<sched::AnswerSteps> answers_;       // decode thread
  std::unique_ptr<sched::SharedLoop> shared_;         // decode thread
  std::unique_ptr<sched::Scheduler> scheduler_;       // decode thread, except its published figures
  sched::StepCounters steps_;
  std::atomic<bool> accepting_{true};
  std::atomic<std::int64_t> heartbeat_{0};
  std::thread thread_;  // started after everything else is ready
};

}  // namespace thermocline
