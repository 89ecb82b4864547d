// Drafts by a transformer with its own KV cache and threads, so that it can work while the target
// verifies: a second, small model with the target's vocabulary, or the target's weights with fewer
// neurons (while the target waits, self_source.h needs no second transformer for that).
//
// In the latter case it reads the target's KV cache: whole blocks of 64 tokens in place, since the
// target no longer writes them, and a copy of the block that the target is still writing.
//   target   [block 0][block 1][block 2, begun  ]
//   draft     |read    |read   [its copy, drafts][drafts]
// So it needs no prefill, a prefix that the target restored from its cache costs it nothing, and
// only drafted tokens have K and V that were computed with fewer neurons.
#pragma once

#include <memory>
#include <vector>

#include "engine/base/index.h"
#include "engine/load/loaded_model.h"
#include "engine/spec/draft_source.h"
#include "engine/spec/proposal_sampler.h"
#include "engine/spec/verify.h"

namespace thermocline::spec {

// Draft thread, or any one thread at a time.
class ModelSource final : public DraftSource {
 public:
  struct Params {
    std::unique_ptr<load::LoadedModel> model;
    int capacity = 0;  // tokens of a sequence
    int width = 2;     // alternates
    int head = 0;      // tokens that can be drafted: the first `head` ids; 0 = all
    Acceptance acceptance = Acceptance::kSameText;
  };
  // ResourceExhausted: no memory for the KV cache.
  static Result<std::unique_ptr<ModelSource>> Create(Params params);

  struct SelfParams {
    const load::LoadedModel& model;  // the target, fully in memory, on one device
    const nn::KvCache& cache;        // the target's, with all tokens of the sequence but the last
    std::vector<ffn::FfnPolicy> policies;  // [L] of a drafted token
    int threads = 1;                       // of the source
    int width = 2;                         // alternates
    Acceptance acceptance = Acceptance::kSameText;
  };
  // Creates a source that drafts with the target's own weights. Errors as Create.
  static Result<std::unique_ptr<ModelSource>> OfTarget(SelfParams params);

  static constexpr int kSelfStepTokens = ffn::kSparseTokensMax;  // maximum of one step

  const char* name() const override { return target_ != nullptr ? "self" : "model"; }
  void Begin(std::span<const int> prompt, const SamplingParams& params) override;
  void OnTargetIdle(std::span<const int> sequence) override;
  Status Propose(std::span<const int> sequence, const More& more, Draft& draft) override;
  int paths_max() const override { return base::IntSize(paths_); }
  Status ProposeEach(std::span<const int> sequence, std::span<const Path> paths,
                     const MoreOfEach& more) override;
  // Bytes of the KV cache of a source with `capacity` tokens, and of one that uses the target's
  // weights.
  static std::size_t KvBytes(const model::ModelConfig& config, int capacity, kernels::KvType type);
  static std::size_t SelfKvBytes(const model::ModelConfig& config, kernels::KvType type);
  bool parallel() const override { return true; }
  int capacity() const override { return cache_->capacity(); }
  void SetOnWait(const std::function<bool()>& should_continue) override {
    should_continue_ = should_continue;
  }
  double catch_up_s() const override { return catch_up_s_; }
  void SetThreads(int threads) override {
    workers_.SetActive(threads > 0 ? threads : threads_alone_);
  }
  int threads() const override { return workers_.threads(); }
  // Sets the number of threads that SetThreads(0) means.
  void SetThreadsAlone(int threads) { threads_alone_ = threads; }

 private:
  // A path of ProposeEach: a separate sequence whose first blocks are those of cache_.
  struct PathState {
    std::unique_ptr<nn::KvCache> cache;
    std::vector<int> tokens;
  };
  struct Parts {
    std::unique_ptr<load::LoadedModel> model = nullptr;   // null: the target's
    std::unique_ptr<base::WorkerPool> workers = nullptr;  // null: the model's
    std::unique_ptr<nn::KvPool> pool = nullptr;
    std::unique_ptr<exec::Transformer> transformer = nullptr;
    const nn::KvCache* target = nullptr;  // the target's cache, which is read; null: not used
    int capacity = 0;
    int width = 0;
    std::size_t head = 0;  // rows of the output
    Acceptance acceptance = Acceptance::kSameText;
  };
  explicit ModelSource(Parts parts);
  // Computes one more token of every path that has room. Returns false if there was none.
  Result<bool> StepPaths(std::span<const Path> paths);
  Status CatchUp();
  // Extends the cache to all of wanted_, and returns the last token's logits.
  Result<std::span<const float>> Feed();
  // Returns logits [V] of all tokens, if only the first ones can be drafted; valid until the next
  // call.
  std::span<const float> WithAllTokens(std::span<const float> logits);

  const std::unique_ptr<load::LoadedModel> model_;
  const std::unique_ptr<base::WorkerPool> own_workers_;
  base::WorkerPool& workers_;
  const std::unique_ptr<nn::KvPool> pool_;
  const nn::KvCache* const
      target_;  // the cache that OnTargetIdle reads; null: this model computes its own
  const std::unique_ptr<nn::KvCache> cache_;
  std::vector<PathState> paths_;
  std::vector<int> step_paths_;
  std::vector<exec::Transformer::Part> step_parts_;
  const std::unique_ptr<exec::Transformer> transformer_;
  ProposalSampler proposals_;
  const int width_;
  const Acceptance acceptance_;
  std::function<bool()> should_continue_;
  double catch_up_s_ = 0;
  int threads_alone_ = 1;
  const std::size_t head_ = 0;  // tokens that can be drafted
  std::vector<float> logits_;   // [V], if head_ < V
  std::size_t prompt_ = 0;      // tokens
  int taken_ = 0;               // tokens of target_ that are in cache_
  std::vector<int> wanted_;     // the sequence and the proposals after it
  std::vector<int> cached_;     // tokens in cache_
};

}  // namespace thermocline::spec
