// The engine's public interface: load a model, submit requests, read statistics.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "engine/api/adapter_choice.h"
#include "engine/api/expert_stats.h"
#include "engine/api/ffn_stats.h"
#include "engine/api/flash_stats.h"
#include "engine/api/grammar_spec.h"
#include "engine/api/grammar_stats.h"
#include "engine/api/model_options.h"
#include "engine/api/request.h"
#include "engine/api/serving_options.h"
#include "engine/api/step_stats.h"
#include "engine/api/token_channel.h"

namespace thermocline {

namespace text {
class Tokenizer;
}
namespace kernels {
struct DeviceOps;
}

// Times that were measured while an engine was loaded.
struct EngineMeasurements;

struct EngineConfig {
  ModelOptions model = {};
  ServingOptions serving = {};
  std::function<void(double)> on_progress = {};
  const std::atomic<bool>* cancelled = nullptr;  // true: the load ends as Cancelled
  // Called once, from the decode thread, when no later request can succeed because a failed GPU
  // could not be set up again. Later requests end with Unavailable. May be empty.
  std::function<void()> on_fatal = {};
  const kernels::DeviceOps* device_ops = nullptr;  // as load::LoadOptions: for tests
  // An earlier engine with the same model and options has measured these, so this one does not.
  std::shared_ptr<const EngineMeasurements> measured = nullptr;
};

struct EngineStats {
  std::string model_path, model_format, architecture, cpu_isa;
  int context_length = 0;          // tokens
  int context_length_trained = 0;  // the model file's, in tokens; 0 = not stated
  int hidden_size = 0, vocab_size = 0;
  std::string weight_type;  // the type of most of the weights, named as in files: "q4_k"
  int threads = 0;
  int running = 0;        // started requests: one computes, the others wait for their turn
  int paused = 0;         // of these, requests that wait for their client to read
  int waiting = 0;        // not started, including places reserved by Admit
  int reserved = 0;       // reserved places among these
  int sequences_max = 0;  // maximum of started requests
  int queue_capacity = 0;
  std::int64_t queue_prefill_tokens = 0;      // prompt tokens of waiting requests
  std::int64_t queue_prefill_tokens_max = 0;  // 0 = no limit
  std::int64_t preemptions = 0;               // turns that ended because another request waited
  std::int64_t recomputed_tokens = 0;         // tokens whose KV was dropped for another request
  std::size_t kv_used_bytes = 0;  // part of kv_bytes: by started requests and the prefix cache
  std::int64_t num_parameters = 0;
  std::size_t weight_bytes = 0;
  std::size_t bytes_per_token = 0;  // weights that one decoded token reads
  std::size_t kv_bytes = 0;         // reserved; resident as far as used so far
  double sharing_gain = 0;          // speedup in the last requests that shared steps; 0 = unknown
  int kv_tokens = 0;                // cached tokens in use, in blocks of layers without a window
  int kv_capacity_tokens = 0;       // the same for all blocks
  std::string kv_type;
  double load_s = 0;
  struct PrefixCache {
    std::int64_t hits = 0, partial = 0, misses = 0;  // lookups
    std::int64_t hit_tokens = 0, new_tokens = 0, evicted_tokens = 0;
    std::int64_t evictions = 0;  // blocks
    std::int64_t bytes = 0, bytes_max = 0;
    std::int64_t states = 0;  // snapshots of recurrent layers
  } prefix_cache;
  // The prefix cache's tier on flash.
  struct PrefixFlash {
    bool used = false, read_only = false;  // read_only: another process writes the folder
    std::string folder;
    std::int64_t hits = 0, partial = 0, misses = 0;  // lookups behind what memory had
    std::int64_t hit_tokens = 0;
    std::int64_t blocks = 0, evicted = 0, damaged = 0;
    std::int64_t bytes = 0, bytes_max = 0, read_bytes = 0, written_bytes = 0;
    std::int64_t queued = 0;                                  // blocks that wait to be written
    std::int64_t dropped_for_room = 0, dropped_by_error = 0;  // blocks that were not written
    double read_s = 0;
  } prefix_flash;
  bool ffn_automatic = false;              // the modes were chosen by measurement
  std::vector<FfnMode> ffn_offered;        // modes that requests may choose
  FfnMode audit_shadow = FfnMode::kDense;  // audited in layers without loss; dense: none
  std::size_t predictor_bytes = 0;         // in memory
  std::string side_car;                    // "" = none
  std::vector<FfnLayerStats> ffn;          // [L]

  // The weights on flash.
  struct Flash {
    bool used = false;
    std::string bundle, method;  // path; "io_uring" or "pread"
    bool layers = false;         // whole layers are streamed; otherwise neurons
    std::size_t cache_bytes = 0;
    FlashCounters counters;
  } flash;
  HotStats hot;
  ExpertStats experts = {};
  SpecStats spec = {};
  GrammarStats grammar = {};
  std::size_t memory_budget = 0, memory_planned = 0;  // bytes of the process
  std::string weights_read;  // how the file was read: direct, dropped, cached (load/file_reading.h)
  StepStats steps = {};
  // Incremented with every step of a request, and about every 50 ms while one waits for flash: if a
  // request is running and this does not change, the engine hangs.
  std::int64_t heartbeat = 0;
};

// A new request before its prompt is tokenized.
struct Arrival {
  int requests = 1;
  std::size_t prompt_bytes = 0;  // text size of the longest prompt, from which tokens are estimated
  std::optional<std::chrono::steady_clock::time_point> deadline = {};
  std::string tenant = {};  // as in Request
};

// Thread-safe.
class Engine {
 public:
  // Reserved places in the queue for requests whose prompts are being tokenized. Releases places
  // that Submit did not use. Must not outlive the engine.
  class Admission {
   public:
    Admission() = default;
    ~Admission() { Release(); }
    Admission(Admission&& other) noexcept { *this = std::move(other); }
    Admission& operator=(Admission&& other) noexcept;

   private:
    friend class Engine;
    void Release();

    Engine* engine_ = nullptr;
    int requests_ = 0;
    std::int64_t tokens_ = 0;  // of each request
    std::string tenant_;
  };
  // Loads the model and starts the decode thread. Errors as load::LoadModel; FailedPrecondition if
  // it has no tokenizer.
  static Result<std::unique_ptr<Engine>> Load(const EngineConfig& config);
  // Cancels all requests, then stops.
  ~Engine();

  // Reserves places for requests before work is spent on them. ResourceExhausted: too many requests
  // or prompt tokens wait. DeadlineExceeded: the requests would wait beyond their deadline.
  // Unavailable: StopAccepting was called.
  Result<Admission> Admit(const Arrival& arrival);

  // Queues a request, in a place of `admission` if it is given. `on_ready` as in TokenChannel.
  // InvalidArgument: a field out of range. OutOfRange: the prompt does not fit the context (with
  // both numbers). FailedPrecondition: modes that are not loaded or unavailable. ResourceExhausted:
  // the queue is full. Unavailable: StopAccepting was called.
  Result<std::shared_ptr<TokenChannel>> Submit(Request request, std::function<void()> on_ready = {},
                                               Admission* admission = nullptr);

  // Compiles a grammar for SamplingParams::constraint. Takes up to GrammarLimits::compile_ms_max,
  // unless the grammar is cached. InvalidArgument and Unimplemented name the wrong or unsupported
  // part, with GrammarSpec::field; ResourceExhausted: other answers' grammars use all the memory.
  Result<std::shared_ptr<const grammar::CompiledGrammar>> Compile(const GrammarSpec& spec);
  // Returns the grammar if it is cached; nullptr: it must be compiled.
  std::shared_ptr<const grammar::CompiledGrammar> FindCompiled(const GrammarSpec& spec);

  // As ServingOptions::queue_capacity and queue_prefill_tokens; requests already waiting stay.
  void SetQueueLimits(int requests, std::int64_t prefill_tokens);
  // Estimated seconds until a place in a full queue is free again, and until a new request would
  // start, based on the waiting work and measured speeds.
  double RetryAfterS() const;
  double WaitS() const;

  // Freezes the predictors' thresholds, or lets the controller move them again.
  void FreezeController(bool frozen);

  // Makes every further Submit fail with Unavailable; queued and running requests continue.
  void StopAccepting();
  // Cancels all running and waiting requests; each channel ends with kCancelled.
  void CancelAll(CancelCause cause = CancelCause::kShutdown);

  const text::Tokenizer& tokenizer() const;
  // The recommendation of the model's makers.
  const SamplingDefaults& sampling() const;
  // The LoRA adapters, by number.
  std::vector<AdapterChoice> adapters() const;
  // False for an encoder, which makes vectors of texts and refuses other requests.
  bool writes() const;
  // The pooling that the model's makers recommend for embeddings; kMean if they recommend none.
  Pooling pooling() const;
  EngineStats Stats() const;
  // nullptr if this load measured nothing that holds for others.
  std::shared_ptr<const EngineMeasurements> measurements() const;

 private:
  class Impl;
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace thermocline
