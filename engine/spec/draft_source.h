// The source of drafts: a second model, the text itself, or the target with fewer neurons.
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "engine/api/sampling_params.h"
#include "engine/base/status.h"
#include "engine/spec/draft.h"

namespace thermocline::spec {

// One thread at a time.
class DraftSource {
 public:
  virtual ~DraftSource() = default;
  virtual const char* name() const = 0;  // model, ngram, self
  // Starts a sequence whose first tokens are `prompt`. Samples as `params` say, with the same
  // random numbers as the target's sampler.
  virtual void Begin(std::span<const int> prompt, const SamplingParams& params) = 0;
  // Appends proposals to `draft` for the tokens after `sequence` and any proposals already in it.
  // Calls `more(draft)` before each token and stops when it returns false or there is nothing to
  // propose. `sequence` begins with the prompt and may otherwise differ from an earlier call's.
  // Requires: room for the proposals.
  using More = std::function<bool(const Draft&)>;
  virtual Status Propose(std::span<const int> sequence, const More& more, Draft& draft) = 0;
  // Called while the target is idle and has computed all of `sequence` but its last token. A source
  // that runs in parallel and reads the target's KV cache copies the blocks that it needs. On the
  // decode thread, before another thread proposes.
  virtual void OnTargetIdle(std::span<const int> /*sequence*/) {}
  // One continuation of a sequence: its first `kept` tokens, then `token`.
  struct Path {
    int kept = 0;
    int token = -1;
    Draft* draft = nullptr;  // proposals after it are appended here; empty at first
  };
  // Maximum paths of one ProposeEach, which costs little more than one path; 0: not supported.
  virtual int paths_max() const { return 0; }
  // Appends proposals for all paths of `sequence`, one token of each at a time, while `more(depth)`
  // returns true before each. They equal the proposals of separate Propose calls.
  using MoreOfEach = std::function<bool(int depth)>;
  virtual Status ProposeEach(std::span<const int> /*sequence*/, std::span<const Path> /*paths*/,
                             const MoreOfEach& /*more*/) {
    return base::Unimplemented("one path at a time");
  }
  // Sets the number of kernel threads; 0: the best number while nothing else computes.
  virtual void SetThreads(int) {}
  virtual int threads() const { return 1; }  // all available
  // Sets a function that a long Propose calls repeatedly; it must be thread-safe. False cancels
  // (Cancelled).
  virtual void SetOnWait(const std::function<bool()>&) {}
  // Seconds of the last Propose spent on tokens of the sequence that were new to the source.
  virtual double catch_up_s() const { return 0; }
  // Returns true if proposing takes negligible time.
  virtual bool free() const { return false; }
  // Returns true if it may run while the target verifies.
  virtual bool parallel() const { return false; }
  // Maximum tokens of a sequence.
  virtual int capacity() const = 0;
};

}  // namespace thermocline::spec
