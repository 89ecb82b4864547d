// What the steps of a sequence begin and end with, whether it computes alone (decode_loop.h) or
// with others (shared_loop.h): what is looked up, what is read next, what its client is given.
#pragma once

#include <functional>
#include <span>

#include "engine/exec/step_result.h"
#include "engine/exec/transformer.h"
#include "engine/nn/kv_cache.h"
#include "engine/nn/prefix_cache.h"
#include "engine/sampling/sampler.h"
#include "engine/sched/sequence.h"
#include "engine/sched/step_counters.h"
#include "engine/text/tokenizer.h"

namespace thermocline::sched {

// A turn's share of a prompt token, in decoded ones: a batch reads the weights once.
inline constexpr double kPromptTokenShare = 1.0 / 8;

// Why a sequence does not go on now; kNone: it does. kError: Sequence::error says why.
enum class Stop { kNone, kStop, kLength, kCancelled, kError, kYielded, kReaderSlow, kNoMemory };

// Counts a step and its time.
class StepTimer {
 public:
  StepTimer() : begin_(SteadyClock::now()) {}
  double elapsed() const { return Seconds(SteadyClock::now() - begin_); }
  // The end of a step that computed `tokens` tokens.
  void Stop(StepCounters& steps, StepCounters::Seconds& phase, int tokens) const;

 private:
  const SteadyClock::time_point begin_;
};

// Decode thread only. Borrows everything.
class AnswerSteps {
 public:
  struct Params {
    nn::PrefixCache* prefixes;  // or null: every prompt is computed whole
    const text::Tokenizer& tokenizer;
    int capacity = 0;                                // tokens of a sequence
    int logits_max = 1;                              // as exec::Transformer
    std::atomic<std::int64_t>* heartbeat = nullptr;  // counts steps and slices of waiting
    StepCounters* steps = nullptr;
    std::function<void()> on_end = {};  // before a request's channel ends
  };
  explicit AnswerSteps(const Params& params) : p_(params) {}

  // True if the client still waits and the deadline has not passed.
  bool GoesOn(const Job& job) const;
  // Copies what earlier requests left of the sequence's tokens into `cache`, which is empty.
  void Find(Sequence& s, nn::KvCache& cache) const;

  // The next tokens to read of what is not computed yet.
  struct Chunk {
    std::span<const int> tokens = {};
    int at = 0;              // of them the first one's place in the sequence
    bool score = false;      // the prompt's tokens are scored
    bool last = false;       // the first token of the answer comes behind them
    bool generated = false;  // they were decoded with loss: one by one

    int rows() const { return score ? base::IntSize(tokens) : last ? 1 : 0; }
  };
  // Of at most `most` tokens. Requires: some are wanted.
  Chunk Next(const Sequence& s, const nn::KvCache& cache, int most) const;
  // Behind the step that computed `chunk`, with the logits wanted of it. kLength: the prompt takes
  // longer than it may.
  Stop Read(Sequence& s, const nn::KvCache& cache, const Chunk& chunk,
            std::span<const float> logits) const;
  // Behind a prompt's last chunk. kLength: that was all that was wanted.
  Stop EndPrompt(Sequence& s, nn::KvCache& cache) const;

  // Gives one token to the client, whom `sampler` drew it for.
  Stop Give(Sequence& s, sampling::Sampler& sampler, int token,
            std::span<const float> logits) const;
  // Tokens that may come behind those that came.
  int Wanted(const Sequence& s) const;
  // Ends the sequence: keeps what may be found again, tells the client.
  void Finish(Sequence& s, nn::KvCache& cache, Stop why) const;

  StepCounters* counters() const { return p_.steps; }
  nn::PrefixCache* prefixes() const { return p_.prefixes; }
  const text::Tokenizer& tokenizer() const { return p_.tokenizer; }

 private:
  void Score(Sequence& s, const Chunk& chunk, std::span<const float> logits) const;
  // Chooses where snapshots of a recurrent model's state are kept. `whole`: nothing was looked up.
  void SetMarks(Sequence& s, const nn::KvCache& cache, bool whole) const;
  // The place of the last turn's beginning in the prompt, where the next prompt of the conversation
  // may part from this one: behind it comes what the model is to write.
  int TailBegin(const std::vector<int>& prompt) const;

  const Params p_;
};

}  // namespace thermocline::sched
