// The model whose text it is, as the decoder sees it.
#pragma once

#include <span>

#include "engine/base/status.h"
#include "engine/exec/transformer.h"
#include "engine/nn/kv_cache.h"

namespace thermocline::spec {

// Decode thread only. A seam: tests put tables of toy models behind it.
class Target {
 public:
  virtual ~Target() = default;
  // Computes `tokens` behind those that are kept. Logits [T, V], until the next call. Errors as
  // exec::Transformer::Forward; then nothing was added.
  // Requires: 1 <= T <= kDraftTokensMax + 1.
  virtual exec::StepResult<std::span<const float>> Step(std::span<const int> tokens) = 0;
  // The first `tokens` tokens of the next step will probably be kept. Holds until that step.
  virtual void ExpectKept(int tokens) { static_cast<void>(tokens); }
  // Keeps the first `kept` tokens of the last step and drops the others.
  virtual void Keep(int kept) = 0;
  // Threads that a step uses; the others are left to the draft. Until it is called again.
  virtual void SetThreads(int threads) = 0;
  virtual int threads() const = 0;  // all there are
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
