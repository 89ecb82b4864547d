// A hot side of experts on the CPU: a thread that drives its own pool of kernel threads.
#pragma once

#include <optional>
#include <thread>

#include "engine/base/step_signal.h"
#include "engine/ffn/expert_partition.h"
#include "engine/ffn/hot_experts.h"

namespace thermocline::ffn {

// Owns its threads, borrows everything else.
class CpuExperts final : public ExpertPartition {
 public:
  struct Params {
    const model::ModelConfig& config;
    const model::Weights& weights;
    const HotExperts& hot;  // held
    const kernels::OpTable& ops;
    int threads;
    int tokens_max;                                // T
    int prefetch_bytes = kernels::kPrefetchBytes;  // as nn::Multiplier
  };
  explicit CpuExperts(const Params& params);
  // Upper bound of the bytes that it allocates; sizes.threads: its own.
  static std::size_t Bytes(const FfnSizes& sizes);
  ~CpuExperts() override;

  bool Has(int layer, int expert) const override { return hot_.Has(layer, expert); }
  void Start(const Job& job) override;
  Result<const float*> Await() override;
  double busy_s() const override { return busy_s_; }

 private:
  void Main();
  void Execute();

  const HotExperts& hot_;
  base::WorkerPool pool_;
  nn::Multiplier multiplier_;
  const FfnContext context_;
  ExpertComputer computer_;
  std::vector<ExpertUnit> units_;   // of the job, with the matrices of this side
  std::vector<ExpertUnit*> where_;  // the same
  std::vector<float> rows_;         // [T K, D]
  // Written by the caller before it raises posted_, read by the thread after.
  std::optional<Job> job_;
  bool stop_ = false;
  // Written by the thread before it raises done_.
  double busy_s_ = 0;
  base::StepSignal posted_, done_;
  std::uint32_t step_ = 0;  // the caller's
  std::thread thread_;
};

}  // namespace thermocline::ffn
