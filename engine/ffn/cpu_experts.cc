#include "engine/ffn/cpu_experts.h"

#include <pthread.h>

#include <cstdint>

#include "engine/base/index.h"
#include "engine/base/stopwatch.h"
#include "engine/nn/offset.h"

namespace thermocline::ffn {
namespace {

int Places(const model::ModelConfig& config, int tokens_max) {
  return tokens_max * config.experts.num_experts_per_tok;
}

}  // namespace

CpuExperts::CpuExperts(const Params& p)
    : hot_(p.hot),
      pool_(p.threads),
      multiplier_(p.ops, pool_, 0),
      context_{p.config, p.weights,   p.ops,
               pool_,    multiplier_, NeuronRanges(p.config.intermediate_size, nullptr)},
      computer_(context_, p.tokens_max),
      rows_(base::Area(Places(p.config, p.tokens_max), p.config.hidden_size)) {
  const int most = std::min(Places(p.config, p.tokens_max), p.config.experts.num_experts);
  units_.reserve(most);
  where_.reserve(most);
  multiplier_.SetPrefetch(p.prefetch_bytes);
  thread_ = std::thread([this] { Main(); });
  ::pthread_setname_np(thread_.native_handle(), "hot-0");
}

std::size_t CpuExperts::Bytes(const FfnSizes& sizes) {
  const int places = Places(sizes.config, sizes.tokens_max);
  return ExpertComputer::Bytes(sizes) +
         base::Area(places, sizes.config.hidden_size) * sizeof(float) +
         base::Area(std::min(places, sizes.config.experts.num_experts),
                    sizeof(ExpertUnit) + sizeof(std::uintptr_t));
}

CpuExperts::~CpuExperts() {
  stop_ = true;
  posted_.Raise(++step_);
  thread_.join();
}

void CpuExperts::Start(const Job& job) {
  job_.emplace(job);
  posted_.Raise(++step_);
}

Result<const float*> CpuExperts::Await() {
  done_.Wait(step_);
  return rows_.data();
}

void CpuExperts::Main() {
  for (std::uint32_t step = 1;; ++step) {
    posted_.Wait(step);
    if (stop_) return;
    const base::Stopwatch watch;
    Execute();
    busy_s_ += watch.Seconds();
    done_.Raise(step);
  }
}

void CpuExperts::Execute() {
  units_.clear();
  where_.clear();
  computer_.Begin();
  for (const ExpertUnit* unit : job_->units) {
    const ExpertPlace& place = hot_.Of(job_->layer, unit->expert);
    ExpertUnit& here = units_.emplace_back(*unit);
    here.gate.weight.data = place.gate;
    here.up.weight.data = place.up;
    here.down.weight.data = place.down;
    where_.push_back(&here);
  }
  computer_.ComputeNeurons(where_, job_->input);
  const int d = context_.config.hidden_size;
  computer_.ForColumns([&](int column, int columns, int thread) {
    for (const ExpertUnit& unit : units_) {
      computer_.Down(unit, column, columns, thread, [&](int i, const float* y) {
        std::copy_n(y, columns, rows_.data() + nn::Offset(unit.hot_row + i, d) + column);
      });
    }
  });
}

}  // namespace thermocline::ffn
