#include "engine/gpu/host_shared_ffn.h"

#include <algorithm>

#include "engine/base/stopwatch.h"
#include "engine/gpu/device_ffn.h"

namespace thermocline::gpu {
namespace {

using Flag = DeviceHandOff::Flag;

}  // namespace

HostSharedFfn::HostSharedFfn(const Params& p)
    : model_(p.model),
      ops_(p.ops),
      exchange_(p.exchange),
      runs_(kernels::NumSumRuns(p.model.config().intermediate_size)),
      limits_(Cells(ffn::kShareTokens) / kernels::kActivationBlock) {
  hidden_.Resize(p.tokens_max, model_.config().hidden_size);
}

std::size_t HostSharedFfn::Bytes(const model::ModelConfig& c, int tokens_max) {
  const int runs = kernels::NumSumRuns(c.intermediate_size);
  return nn::ActivationBuffer::Bytes(tokens_max, c.hidden_size) +
         Area(ffn::kShareTokens * runs, c.hidden_size) / kernels::kActivationBlock * sizeof(float);
}

std::size_t HostSharedFfn::Cells(int tokens) const {
  return Area(tokens * runs_, model_.config().hidden_size);
}

void HostSharedFfn::BeginStep() {
  exchanges_ = 0;
  error_ = OkStatus();
}

Status HostSharedFfn::Serve(const Job& job) {
  const int step = DeviceFfn::SumsFloats(model_.layer(job.layer)) ? job.tokens : ffn::kShareTokens;
  for (int first = 0; first < job.tokens; first += step) RETURN_IF_ERROR(ServeFrom(job, first));
  return OkStatus();
}

Status HostSharedFfn::ServeFrom(const Job& job, int first) {
  const base::Stopwatch watch;
  const double waited = counters_.wait_s;
  exchange_.flags().Begin();
  if (first == 0) {
    RETURN_IF_ERROR(exchange_.flags().Wait(Flag::kDeviceInput));
    if (error_.ok()) error_ = Find(job);
  }
  ffn::SparseFfn* part = error_.ok() ? &job.cold : nullptr;
  const bool floats = DeviceFfn::SumsFloats(model_.layer(job.layer));
  const int tokens = floats ? job.tokens : std::min(ffn::kShareTokens, job.tokens - first);
  if (floats)
    ServeFloats(job.layer, tokens, part);
  else
    RETURN_IF_ERROR(ServeBatch(job.layer, first, tokens, part));
  if (part == nullptr) return OkStatus();
  const bool last = first + tokens == job.tokens;
  if (last) part->EndLayer(job.layer);
  counters_.cold.busy_s -= counters_.wait_s - waited;
  Count(job, watch.Seconds(), last);
  return OkStatus();
}

void HostSharedFfn::Count(const Job& job, double seconds, bool last) {
  counters_.total_s += seconds;
  counters_.cold.busy_s += seconds;
  if (!last || !job.decoded) return;
  ++counters_.cold.steps;
  counters_.cold.active += job.cold.found();
}

Status HostSharedFfn::Find(const Job& job) {
  std::copy_n(exchange_.host().x, Area(job.tokens, model_.config().hidden_size), hidden_.x.data());
  for (int t = 0; t < job.tokens; ++t) nn::QuantizeToken(ops_, hidden_, t);
  return job.cold.Find(job.layer, {hidden_, exchange_.host().residual, job.tokens, job.decoded},
                       job.cold.PolicyFor(job.layer, job.lossless), job.lossless);
}

void HostSharedFfn::ServeFloats(int layer, int tokens, ffn::SparseFfn* cold) {
  float* out = exchange_.host().out;
  if (cold != nullptr) {
    cold->SumFound(layer, tokens, out, false);
  } else {
    std::fill_n(out, Area(tokens, model_.config().hidden_size), 0.0F);
  }
  exchange_.flags().Raise(Flag::kHostSums);
}

Status HostSharedFfn::ServeBatch(int layer, int first, int tokens, ffn::SparseFfn* cold) {
  DeviceHandOff& flags = exchange_.flags();
  float* maxima = exchange_.host().maxima[exchanges_++ % 2];
  FillMaxima(layer, first, tokens, cold, maxima);
  flags.Raise(Flag::kHostMaxima);
  const base::Stopwatch waiting;
  RETURN_IF_ERROR(flags.Wait(Flag::kDeviceMaxima));
  counters_.wait_s += waiting.Seconds();
  FillSums(layer, first, tokens, cold, maxima);
  flags.Raise(Flag::kHostSums);
  return OkStatus();
}

void HostSharedFfn::FillMaxima(int layer, int first, int tokens, ffn::SparseFfn* cold,
                               float* maxima) {
  if (cold != nullptr) return cold->SumShared(layer, first, tokens, {.maxima = maxima});
  std::fill_n(maxima, Cells(tokens) / kernels::kActivationBlock, 0.0F);
}

void HostSharedFfn::FillSums(int layer, int first, int tokens, ffn::SparseFfn* cold,
                             const float* maxima) {
  const DeviceExchange::Arrays& host = exchange_.host();
  const std::size_t blocks = Cells(tokens) / kernels::kActivationBlock;
  if (cold != nullptr) {
    for (std::size_t i = 0; i < blocks; ++i) limits_[i] = std::max(maxima[i], host.home_maxima[i]);
    return cold->SumShared(layer, first, tokens,
                           {nullptr, limits_.data(), host.high, host.low, host.minimums});
  }
  std::fill_n(host.high, Cells(tokens), 0);
  std::fill_n(host.low, Cells(tokens), 0);
  std::fill_n(host.minimums, blocks, 0.0F);
}

}  // namespace thermocline::gpu
