// Drafts by the target itself, with a predictor and only the neurons that are in memory: no second
// model, and no flash reads while drafting. The K and V of a draft occupy the positions of its
// verification, so it drafts while the target is idle; ModelSource::OfTarget drafts in parallel.
#pragma once

#include <vector>

#include "engine/load/loaded_model.h"
#include "engine/spec/draft_source.h"
#include "engine/spec/proposal_sampler.h"
#include "engine/spec/verify.h"

namespace thermocline::spec {

// Decode thread only: it shares transformer and cache with the target.
class SelfSource final : public DraftSource {
 public:
  struct Params {
    const load::LoadedModel& model;
    exec::Transformer& transformer;
    nn::KvCache& cache;                    // the target's: all tokens of the sequence but the last
    std::vector<ffn::FfnPolicy> policies;  // [L] of a drafted token
    int width = 0;                         // alternates
    Acceptance acceptance = Acceptance::kSameText;
  };
  explicit SelfSource(const Params& params);
  const char* name() const override { return "self"; }
  void Begin(std::span<const int> prompt, const SamplingParams& params) override;
  Status Propose(std::span<const int> sequence, const More& more, Draft& draft) override;
  int capacity() const override { return cache_.capacity(); }
  // Restores all threads, because a step beside another draft may have left some to it.
  void SetThreads(int) override { pool_.SetActive(pool_.threads()); }

 private:
  Status Draw(std::span<const int> sequence, const More& more, Draft& draft);

  exec::Transformer& transformer_;
  nn::KvCache& cache_;
  base::WorkerPool& pool_;
  std::vector<ffn::FfnPolicy> policies_, kept_;  // [L]
  ProposalSampler proposals_;
  const int width_;
  const Acceptance acceptance_;
  std::size_t prompt_ = 0;   // tokens
  std::vector<int> wanted_;  // the sequence and the proposals after it
};

}  // namespace thermocline::spec
