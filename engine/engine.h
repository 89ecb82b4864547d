// The engine's public face: load a model, submit requests, read statistics.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

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

struct EngineConfig {
  ModelOptions model = {};
  ServingOptions serving = {};
  std::function<void(double)> on_progress = {};
  // Called once, from the decode thread, when no later request can work: a GPU that failed and
  // could not be set up again. Requests after it end with Unavailable. Empty: nobody.
  std::function<void()> on_fatal = {};
  const kernels::DeviceOps* device_ops = nullptr;  // as load::LoadOptions: for tests
};

struct EngineStats {
  std::string model_path, model_format, architecture, cpu_isa;
  int context_length = 0;          // tokens
  int context_length_trained = 0;  // the model file's, in tokens; 0 = it does not say
  int hidden_size = 0, vocab_size = 0;
  std::string weight_type;  // that most of the weights' bytes have, as files name it: "q4_k"
  int threads = 0;
  int running = 0;        // requests that are begun: one computes, the others wait for their turn
  int paused = 0;         // of them, those that wait for their client to read
  int waiting = 0;        // not begun, places reserved by Admit included
  int reserved = 0;       // of these, places
  int sequences_max = 0;  // begun at the same time
  int queue_capacity = 0;
  std::int64_t queue_prefill_tokens = 0;      // prompt tokens of those that wait
  std::int64_t queue_prefill_tokens_max = 0;  // 0 = any number
  std::int64_t preemptions = 0;               // turns that ended because another request waited
  std::int64_t recomputed_tokens = 0;  // whose keys and values made room for another request's
  std::size_t kv_used_bytes = 0;       // of kv_bytes: of begun requests and of the prefix cache
  std::int64_t num_parameters = 0;
  std::size_t weight_bytes = 0;
  std::size_t bytes_per_token = 0;  // weights that one decoded token reads
  std::size_t kv_bytes = 0;         // reserved; resident as far as it was used
  double sharing_gain = 0;          // of the last requests that shared steps; 0 = not known
  int kv_tokens = 0;                // in use: cached tokens of layers that see all, in blocks
  int kv_capacity_tokens = 0;       // of all blocks
  std::string kv_type;
  double load_s = 0;
  struct PrefixCache {
    std::int64_t hits = 0, partial = 0, misses = 0;  // lookups
    std::int64_t hit_tokens = 0, new_tokens = 0, evicted_tokens = 0;
    std::int64_t evictions = 0;  // blocks
    std::int64_t bytes = 0, bytes_max = 0;
  } prefix_cache;
  bool ffn_automatic = false;              // the modes were chosen by measurement
  std::vector<FfnMode> ffn_offered;        // modes that a request may ask for
  FfnMode audit_shadow = FfnMode::kDense;  // audited where layers lose nothing; dense: none
  std::size_t predictor_bytes = 0;         // in memory
  std::string side_car;                    // "" = none
  std::vector<FfnLayerStats> ffn;          // [L]

  // The weights that memory does not hold.
  struct Flash {
    bool used = false;
    std::string bundle, method;  // path; "io_uring" or "pread"
    bool layers = false;         // whole layers are streamed, else neurons
    std::size_t cache_bytes = 0;
    FlashCounters counters;
  } flash;
  HotStats hot;
  ExpertStats experts = {};
  SpecStats spec = {};
  GrammarStats grammar = {};
  std::size_t memory_budget = 0, memory_planned = 0;  // bytes of the process
  std::string weights_read;  // how the file was: direct, dropped, cached (load/file_reading.h)
  StepStats steps = {};
  // Grows with every step of a request, and about every 50 ms while one waits for flash: one that
  // runs while this stands still hangs.
  std::int64_t heartbeat = 0;
};

// A request that comes, before its prompt is made into tokens.
struct Arrival {
  int requests = 1;
  std::size_t prompt_bytes = 0;  // of the longest prompt's text; tokens are estimated from it
  std::optional<std::chrono::steady_clock::time_point> deadline = {};
  std::string tenant = {};  // as in Request
};

// Thread-safe.
class Engine {
 public:
  // Places in the queue that are kept for requests whose prompts are being made into tokens. Gives
  // back what Submit did not use. Does not outlive the engine.
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
  // Loads the model and starts the decode thread. Errors as load::LoadModel; FailedPrecondition
  // without a tokenizer.
  static Result<std::unique_ptr<Engine>> Load(const EngineConfig& config);
  // Cancels what runs or waits, then stops.
  ~Engine();

  // Keeps places for requests before anything is spent on them. ResourceExhausted: too many
  // requests or prompt tokens wait. DeadlineExceeded: they would wait longer than they may.
  // Unavailable: StopAccepting was called.
  Result<Admission> Admit(const Arrival& arrival);

  // Queues a request, in a place of `admission`, if there is one. `on_ready` as in TokenChannel.
  // InvalidArgument: a field out of range. OutOfRange: the prompt does not fit the context (both
  // numbers given). FailedPrecondition: modes that were not loaded or cannot be. ResourceExhausted:
  // the queue is full. Unavailable: StopAccepting was called.
  Result<std::shared_ptr<TokenChannel>> Submit(Request request, std::function<void()> on_ready = {},
                                               Admission* admission = nullptr);

  // For SamplingParams::constraint. Takes up to GrammarLimits::compile_ms_max, unless the same
  // grammar was asked for before. InvalidArgument, Unimplemented: what of it is wrong or not
  // supported, with GrammarSpec::field; ResourceExhausted: other answers' grammars hold the memory.
  Result<std::shared_ptr<const grammar::CompiledGrammar>> Compile(const GrammarSpec& spec);
  // Returns the grammar if Compile made it before and keeps it; nullptr: it must be compiled.
  std::shared_ptr<const grammar::CompiledGrammar> FindCompiled(const GrammarSpec& spec);

  // As ServingOptions::queue_capacity and queue_prefill_tokens; what waits stays.
  void SetQueueLimits(int requests, std::int64_t prefill_tokens);
  // Seconds until a place in a full queue is free again, and until a request that came now would be
  // begun: estimates from what waits and what such work took.
  double RetryAfterS() const;
  double WaitS() const;

  // Holds the predictors' thresholds where they are, or lets the controller move them again.
  void FreezeController(bool frozen);

  // Every further Submit is Unavailable; what is queued or running goes on.
  void StopAccepting();
  // Cancels what runs and what waits; each channel ends with kCancelled.
  void CancelAll(CancelCause cause = CancelCause::kShutdown);

  const text::Tokenizer& tokenizer() const;
  // The recommendation of the model's makers.
  const SamplingDefaults& sampling() const;
  // The pooling that the model's makers want for vectors of texts; kMean if they do not say.
  Pooling pooling() const;
  EngineStats Stats() const;

 private:
  class Impl;
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace thermocline
