#include "engine/ffn/cpu_partition.h"

#include <pthread.h>

#include <algorithm>

#include "engine/base/index.h"
#include "engine/base/stopwatch.h"

namespace thermocline::ffn {

CpuPartition::CpuPartition(const Params& p)
    : members_(p.members),
      hidden_size_(p.config.hidden_size),
      floats_(!kernels::Traits(p.weights.FirstNetwork().down_rows.type).quantized),
      pool_(p.threads),
      multiplier_(p.ops, pool_, nn::PanelScratchBytes(p.weights)),
      ffn_({.config = p.config,
            .weights = p.weights,
            .predictors = p.predictors,
            .ops = p.ops,
            .pool = pool_,
            .multiplier = multiplier_,
            .tokens_max = p.tokens_max,
            .members = &p.members,
            .ablation = p.ablation}) {
  multiplier_.SetPrefetch(p.prefetch_bytes);
  if (floats_) {
    output_.resize(base::Area(p.tokens_max, hidden_size_));
  } else {
    sums_ = SideSums(p.config, p.tokens_max);
  }
  thread_ = std::thread([this] { Main(); });
  ::pthread_setname_np(thread_.native_handle(), "hot-0");
}

std::size_t CpuPartition::Bytes(const FfnSizes& sizes) {
  const std::size_t output = base::Area(sizes.tokens_max, sizes.config.hidden_size) * sizeof(float);
  return SparseFfn::Bytes(sizes) + sizes.threads * nn::PanelScratchBytesMax(sizes.config) +
         std::max(output, SideSums::Bytes(sizes.config, sizes.tokens_max));
}

CpuPartition::~CpuPartition() {
  Post(Command::kStop);
  thread_.join();
}

void CpuPartition::Post(Command command) {
  command_ = command;
  posted_.Raise(++step_);
}

void CpuPartition::Start(const Job& job) {
  job_.emplace(job);
  first_ = 0;
  Post(Command::kFind);
}

Result<const float*> CpuPartition::Maxima() {
  if (first_ > 0) Post(Command::kMaxima);
  done_.Wait(step_);
  if (!status_.ok()) return status_;
  return sums_.maxima.data();
}

void CpuPartition::Sum(const float* limits) {
  limits_ = limits;
  Post(Command::kSum);
}

Result<kernels::FinishSumParams::Part> CpuPartition::Await() {
  done_.Wait(step_);
  first_ += kShareTokens;
  if (!status_.ok()) return status_;
  return sums_.part();
}

Result<const float*> CpuPartition::AwaitOutput() {
  done_.Wait(step_);
  if (!status_.ok()) return status_;
  return output_.data();
}

void CpuPartition::Main() {
  for (std::uint32_t step = 1;; ++step) {
    posted_.Wait(step);
    if (command_ == Command::kStop) return;
    const base::Stopwatch watch;
    Execute(command_);
    counters_.busy_s += watch.Seconds();
    done_.Raise(step);
  }
}

void CpuPartition::Execute(Command command) {
  const Job& job = *job_;
  const int count = std::min(kShareTokens, job.input.tokens - first_);
  if (command == Command::kFind) {
    status_ = ffn_.Find(job.layer, job.input, job.policy);
    if (!status_.ok()) return;
    if (job.input.decoded) {
      ++counters_.steps;
      counters_.active += ffn_.found();
    }
    if (floats_) return ffn_.SumFound(job.layer, job.input.tokens, output_.data(), false);
  }
  ffn_.SumShared(job.layer, first_, count,
                 command == Command::kSum ? sums_.under(limits_)
                                          : kernels::SharedSum{.maxima = sums_.maxima.data()});
}

}  // namespace thermocline::ffn
