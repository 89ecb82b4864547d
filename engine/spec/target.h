// The target model, as the decoder sees it.
#pragma once

#include <span>

#include "engine/base/status.h"
#include "engine/exec/transformer.h"
#include "engine/nn/kv_cache.h"

namespace thermocline::spec {

// Decode thread only. A seam: tests replace it by tables of toy models.
class Target {
 public:
  virtual ~Target() = default;
  // Computes `tokens` after the kept ones. Returns logits [T, V], valid until the next call. Errors
  // as exec::Transformer::Forward; then no token was added. Requires: 1 <= T <= kDraftTokensMax +
  // 1.
  virtual exec::StepResult<std::span<const float>> Step(std::span<const int> tokens) = 0;
  // A hint that the first `tokens` tokens of the next step will probably be kept. Holds until that
  // step.
  virtual void ExpectKept(int tokens) { static_cast<void>(tokens); }
  // Keeps the first `kept` tokens of the last step and drops the others.
  virtual void Keep(int kept) = 0;
  // Sets the threads that a step uses; the others are left to the draft. Holds until the next call.
  virtual void SetThreads(int threads) = 0;
  virtual int threads() const = 0;  // all available
};

class TransformerTarget final : public Target {
 public:
  TransformerTarget(exec::Transformer& transformer, nn::KvCache& cache, base::WorkerPool& pool)
      : transformer_(transformer), cache_(cache), pool_(pool) {}
  exec::StepResult<std::span<const float>> Step(std::span<const int> tokens) override;
  void ExpectKept(int tokens) override { transformer_.ExpectKept(tokens); }
  void Keep(int kept) override;
  void SetThreads(int threads) override { pool_.SetActive(threads); }
  int threads() const override { return pool_.threads(); }

 private:
  exec::Transformer& transformer_;
  nn::KvCache& cache_;
  base::WorkerPool& pool_;
  int stepped_ = 0;  // tokens of the last step
};

}  // namespace thermocline::spec
