// The work at the beginning and end of a sequence's steps, whether it computes alone
// (decode_loop.h) or in shared steps (shared_loop.h): prefix lookup, the next prefill chunk, and
// delivery of tokens to the client.
#pragma once

#include <functional>
#include <span>

#include "engine/exec/step_result.h"
#include "engine/exec/transformer.h"
#include "engine/nn/kv_cache.h"
#include "engine/nn/prefix_cache.h"
#include "engine/prefix/flash_prefixes.h"
#include "engine/sampling/sampler.h"
#include "engine/sched/sequence.h"
#include "engine/sched/step_counters.h"
#include "engine/text/tokenizer.h"

namespace thermocline::sched {

// The weight of a prompt token in a turn's token count, relative to a decoded token: a prefill
// batch reads the weights once for many tokens.
inline constexpr double kPromptTokenShare = 1.0 / 8;

// The reason why a sequence stops computing now; kNone: it continues. kError: see Sequence::error.
enum class Stop { kNone, kStop, kLength, kCancelled, kError, kYielded, kReaderSlow, kNoMemory };

// Measures a step's time and adds it to the counters.
class StepTimer {
 public:
  StepTimer() : begin_(SteadyClock::now()) {}
  double elapsed() const { return Seconds(SteadyClock::now() - begin_); }
  // Ends the measurement of a step that computed `tokens` tokens.
  void Stop(StepCounters& steps, StepCounters::Seconds& phase, int tokens) const;

 private:
  const SteadyClock::time_point begin_;
};

// Decode thread only. Borrows all its parameters.
class AnswerSteps {
 public:
  struct Params {
    nn::PrefixCache* prefixes;               // or null: every prompt is computed in full
    prefix::FlashPrefixes* flash = nullptr;  // the tier below; or null: there is none
    const text::Tokenizer& tokenizer;
    int capacity = 0;                                // maximum tokens of a sequence
    int logits_max = 1;                              // as exec::Transformer
    std::atomic<std::int64_t>* heartbeat = nullptr;  // counts steps and slices of waiting time
    StepCounters* steps = nullptr;
    std::function<void()> on_end = {};  // called before a request's channel ends
    bool log_differences = false;       // ServingOptions::log_prefix_differences
  };
  explicit AnswerSteps(const Params& params) : p_(params) {}

  // Returns true if the client is still connected and the deadline has not passed.
  bool ShouldContinue(const Job& job) const;
  // Restores the longest prefix of the sequence's tokens that memory has into `cache`, which is
  // empty. If flash has a longer one, Sequence::restoring is set, and Restore must complete it
  // before the next chunk.
  void RestorePrefix(Sequence& s, nn::KvCache& cache) const;
  // Restores a slice from flash. Requires: s.restoring, and Wanted() blocks are free.
  void Restore(Sequence& s, nn::KvCache& cache) const;

  // The next chunk of tokens to prefill.
  struct Chunk {
    std::span<const int> tokens = {};
    int at = 0;              // position of the first token in the sequence
    bool score = false;      // the prompt's tokens are scored
    bool last = false;       // the first token of the answer follows this chunk
    bool generated = false;  // decoded in a lossy mode: recomputed one by one

    int rows() const { return score ? base::IntSize(tokens) : last ? 1 : 0; }
  };
  // Returns a chunk of at most `most` tokens. Requires: the cache has fewer tokens than needed.
  Chunk NextChunk(const Sequence& s, const nn::KvCache& cache, int most) const;
  // Called after the step that computed `chunk`, with the logits that the chunk requested. Returns
  // kLength if prefill has exceeded its time limit.
  Stop EndChunk(Sequence& s, const nn::KvCache& cache, const Chunk& chunk,
                std::span<const float> logits) const;
  // Called after a prompt's last chunk. Returns kLength if the request wants no answer.
  Stop EndPrompt(Sequence& s, nn::KvCache& cache) const;

  // Sends one token, drawn with `sampler`, to the client. kError: its logit is not a number.
  Stop EmitToken(Sequence& s, sampling::Sampler& sampler, int token,
                 std::span<const float> logits) const;
  // Sends a text's vector. kError: it is not finite.
  static Stop EmitEmbedding(Sequence& s, std::vector<float> embedding);
  // Returns the number of further tokens that the answer may have.
  int TokensLeft(const Sequence& s) const;
  // Gives back the sequence's KV cache, to be restored or computed again before its next step. With
  // a flash tier it is queued for writing first, and its memory is free once it is written.
  void Suspend(Sequence& s, nn::KvCache& cache) const;
  // Ends the sequence: stores its reusable prefix in the prefix cache and finishes the client's
  // channel.
  void Finish(Sequence& s, nn::KvCache& cache, Stop why) const;

  StepCounters* counters() const { return p_.steps; }
  nn::PrefixCache* prefixes() const { return p_.prefixes; }
  prefix::FlashPrefixes* flash() const { return p_.flash; }
  const text::Tokenizer& tokenizer() const { return p_.tokenizer; }

 private:
  // The number of tokens in `cache` whose KV cache other steps may use.
  static std::size_t TokensToKeep(const Sequence& s, const nn::KvCache& cache);
  // Offers the first `tokens` tokens of the sequence to both tiers.
  void Keep(const Sequence& s, std::size_t tokens, const nn::KvCache& cache) const;
  // Reports where the last lookup's prompt differs from a cached one; logs the text if asked to.
  void SeeDifference(Sequence& s) const;
  void Score(Sequence& s, const Chunk& chunk, std::span<const float> logits) const;
  // Chooses the positions of snapshots of a recurrent model's state. `whole`: the prefix cache was
  // not consulted.
  void SetMarks(Sequence& s, const nn::KvCache& cache, bool whole) const;
  // Returns the position in the prompt where its last turn begins: the model's answer follows
  // there, so the next prompt of the conversation may differ from this one behind it.
  int TailBegin(const std::vector<int>& prompt) const;

  const Params p_;
};

}  // namespace thermocline::sched
