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
  // Starts a sequence whose first tokens are `prompt`. Draws as `params` say, with the numbers that
  // the target's sampler draws with.
  virtual void Begin(std::span<const int> prompt, const SamplingParams& params) = 0;
  // Appends proposals to `draft` for the tokens behind `sequence`, and behind those that are in it
  // already, as long as `more(draft)` says so before each, or until there is nothing to propose.
  // `sequence` begins with the prompt and may differ from an earlier call's anywhere behind it.
  // Requires: room for the proposals.
  using More = std::function<bool(const Draft&)>;
  virtual Status Propose(std::span<const int> sequence, const More& more, Draft& draft) = 0;
  // The target rests, and has computed `sequence` but for its last token: a source that works
  // beside it and reads its KV cache takes what it needs. On the decode thread, before another
  // thread proposes.
  virtual void TargetRests(std::span<const int> /*sequence*/) {}
  // One continuation of a sequence: its first `kept` tokens, then `token`.
  struct Path {
    int kept = 0;
    int token = -1;
    Draft* draft = nullptr;  // proposals behind it are appended here; empty at first
  };
  // Paths that ProposeEach takes at once, for little more than one costs; 0: it is not there.
  virtual int paths_max() const { return 0; }
  // Proposals for all paths of `sequence`, a token of each at a time as long as `more(depth)` says
  // so before each, with the proposals that Propose would give for each alone.
  using MoreOfEach = std::function<bool(int depth)>;
  virtual Status ProposeEach(std::span<const int> /*sequence*/, std::span<const Path> /*paths*/,
                             const MoreOfEach& /*more*/) {
    return base::Unimplemented("one path at a time");
  }
  // Kernel threads from now on; 0: what is best while nobody else computes.
  virtual void SetThreads(int) {}
  virtual int threads() const { return 1; }  // all there are
  // Asked now and then by a long Propose; false gives it up (Cancelled). Thread-safe itself.
  virtual void SetOnWait(const std::function<bool()>&) {}
  // Seconds that the last Propose spent on tokens of the sequence that were new to the source.
  virtual double catch_up_s() const { return 0; }
  // True if proposing costs no time worth counting.
  virtual bool free() const { return false; }
  // True if it may run while the target verifies.
  virtual bool parallel() const { return false; }
  // Tokens a sequence may have.
  virtual int capacity() const = 0;
};

}  // namespace thermocline::spec
