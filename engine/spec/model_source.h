// Drafts by a second, small model with the target's vocabulary.
#pragma once

#include <memory>
#include <vector>

#include "engine/load/loaded_model.h"
#include "engine/sampling/sampler.h"
#include "engine/spec/draft_source.h"
#include "engine/spec/verify.h"

namespace thermocline::spec {

// What all sources do that draw from logits: the token, what else may come, and how sure it is.
class Drawer {
 public:
  Drawer(int vocab_size, int capacity) : sampler_(vocab_size, capacity) {}
  // `width`: alternates wanted. `distributions`: proposals carry what they were drawn from.
  void Begin(std::span<const int> prompt, const SamplingParams& params, int width,
             bool distributions);
  // The tokens generated so far are `generated`: penalties depend on them.
  void Follow(std::span<const int> generated);
  // Requires: logits [V] of the token behind those followed, at `position`.
  void Draw(std::span<const float> logits, int position, Proposal& proposal);
  // Tests see every draw here. Null: the seed's.
  void SetChance(const sampling::Chance* chance) { chance_ = chance; }

 private:
  void DrawGreedy(Proposal& proposal);
  void DrawSampled(const sampling::Distribution& from, int position, Proposal& proposal);

  sampling::Sampler sampler_;
  const sampling::Chance* chance_ = nullptr;
  std::vector<int> ranked_;
  int width_ = 0;
  bool distributions_ = false;
};

// Draft thread, or any one thread at a time.
class ModelSource final : public DraftSource {
 public:
  struct Params {
    std::unique_ptr<load::LoadedModel> model;
    int capacity = 0;  // tokens of a sequence
    int width = 2;     // alternates
    int head = 0;      // tokens that can be drafted: the first ones; 0 = all
    Acceptance acceptance = Acceptance::kSameText;
  };
  // ResourceExhausted: no memory for keys and values.
  static Result<std::unique_ptr<ModelSource>> Create(Params params);
  const char* name() const override { return "model"; }
  void Begin(std::span<const int> prompt, const SamplingParams& params) override;
  Status Propose(std::span<const int> sequence, const More& more, Draft& draft) override;
  int paths_max() const override { return base::IntSize(paths_); }
  Status ProposeEach(std::span<const int> sequence, std::span<const Path> paths,
                     const MoreOfEach& more) override;
  // Keys and values that a source of so many tokens will take.
  static std::size_t KvBytes(const model::ModelConfig& config, int capacity, kernels::KvType type);
  bool parallel() const override { return true; }
  int capacity() const override { return cache_->capacity(); }
  const load::LoadedModel& model() const { return *model_; }
  void SetOnWait(const std::function<bool()>& goes_on) override { goes_on_ = goes_on; }
  double catch_up_s() const override { return catch_up_s_; }
  void SetThreads(int threads) override {
    model_->pool->SetActive(threads > 0 ? threads : threads_alone_);
  }
  int threads() const override { return model_->pool->threads(); }
  // What SetThreads(0) means.
  void SetThreadsAlone(int threads) { threads_alone_ = threads; }

 private:
  // A path of ProposeEach: a sequence of its own, whose first blocks are those of cache_.
  struct PathState {
    std::unique_ptr<nn::KvCache> cache;
    std::vector<int> tokens;
  };
  ModelSource(Params params, std::unique_ptr<nn::KvPool> pool);
  // One more token of every path that has room. Returns whether there was any.
  Result<bool> StepPaths(std::span<const Path> paths);
  Status CatchUp();
  // Has the cache hold all of wanted_, and returns the last one's logits.
  Result<std::span<const float>> Feed();
  // Logits [V] of all tokens, where only the first can be drafted; until the next call.
  std::span<const float> Widened(std::span<const float> logits);

  std::unique_ptr<load::LoadedModel> model_;
  std::unique_ptr<nn::KvPool> pool_;
  std::unique_ptr<nn::KvCache> cache_;
  std::vector<PathState> paths_;
  std::vector<int> step_tokens_, step_paths_;
  std::vector<nn::KvCache*> step_caches_;
  std::unique_ptr<exec::Transformer> transformer_;
  Drawer drawer_;
  const int width_;
  const Acceptance acceptance_;
  std::function<bool()> goes_on_;
  double catch_up_s_ = 0;
  int threads_alone_ = 1;
  std::vector<float> logits_;  // [V] where not all tokens can be drafted
  std::size_t head_ = 0;       // tokens that can
  std::size_t prompt_ = 0;     // tokens
  std::vector<int> wanted_;    // the sequence and what was proposed behind it
  std::vector<int> cached_;    // tokens in cache_
};

}  // namespace thermocline::spec
