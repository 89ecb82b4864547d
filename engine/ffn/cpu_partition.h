// A hot side on the CPU: a thread that drives its own pool of kernel threads, with its neurons in a
// separate block of memory.
#pragma once

#include <optional>
#include <thread>

#include "engine/base/index.h"
#include "engine/base/step_signal.h"
#include "engine/ffn/side_sums.h"

namespace thermocline::ffn {

// Owns its threads, borrows everything else.
class CpuPartition final : public FfnPartition {
 public:
  struct Params {
    const model::ModelConfig& config;
    const model::Weights& weights;                 // of the members, at least
    const predictor::Predictors* predictors;       // of the members; null: none
    const std::vector<std::vector<int>>& members;  // [L] ascending neurons
    const kernels::OpTable& ops;
    int threads;
    int tokens_max;                                // T
    int prefetch_bytes = kernels::kPrefetchBytes;  // as nn::Multiplier
    Ablation ablation = {};
  };
  explicit CpuPartition(const Params& params);
  // Upper bound of the bytes that it allocates; sizes.threads: its own.
  static std::size_t Bytes(const FfnSizes& sizes);
  ~CpuPartition() override;

  void Start(const Job& job) override;
  Result<const float*> Maxima() override;
  void Sum(const float* limits) override;
  Result<kernels::FinishSumParams::Part> Await() override;
  Result<const float*> AwaitOutput() override;
  int NumNeurons(int layer) const override { return base::IntSize(members_[layer]); }
  // Called between layers.
  PartitionCounters counters() const override { return counters_; }
  AuditedSide* audited_side() override { return &ffn_; }
  const FfnCounters& ffn_counters(int layer) const override { return ffn_.counters(layer); }

 private:
  // The thread executes one command at a time.
  enum class Command { kFind, kMaxima, kSum, kStop };

  void Main();
  void Execute(Command command);
  void Post(Command command);

  const std::vector<std::vector<int>>& members_;
  const int hidden_size_;
  const bool floats_;  // down rows are of a float type
  base::WorkerPool pool_;
  nn::Multiplier multiplier_;
  SparseFfn ffn_;
  SideSums sums_;              // of quantised types
  std::vector<float> output_;  // [T, D] of float types
  // Written by the caller before it raises posted_, read by the thread after.
  Command command_ = Command::kFind;
  std::optional<Job> job_;
  const float* limits_ = nullptr;
  int first_ = 0;  // first token of the current batch
  // Written by the thread before it raises done_, read by the caller after.
  Status status_;
  PartitionCounters counters_;
  base::StepSignal posted_, done_;
  std::uint32_t step_ = 0;  // the caller's
  std::thread thread_;
};

}  // namespace thermocline::ffn
