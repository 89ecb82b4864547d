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

std::size_t HostSharedFfn::Cells(int tokens) const {
  return Area(tokens * runs_, model_.config().hidden_size);
}

void HostSharedFfn::BeginStep() {
  exchanges_ = 0;
  error_ = OkStatus();
}

Status HostSharedFfn::Serve(int layer, int tokens, bool lossless, ffn::SparseFfn& cold) {
  const base::Stopwatch watch;
  const double waited = counters_.wait_s;
  exchange_.flags().Begin();
  RETURN_IF_ERROR(exchange_.flags().Wait(Flag::kDeviceInput));
  if (error_.ok()) error_ = Find(layer, tokens, lossless, cold);
  ffn::SparseFfn* part = error_.ok() ? &cold : nullptr;
  if (DeviceFfn::SumsFloats(model_.layer(layer))) {
    ServeFloats(layer, tokens, part);
  } else {
    for (int first = 0; first < tokens; first += ffn::kShareTokens) {
      if (first > 0) exchange_.flags().Begin();
      RETURN_IF_ERROR(ServeBatch(layer, first, std::min(ffn::kShareTokens, tokens - first), part));
    }
  }
  if (part == nullptr) return OkStatus();
  cold.EndLayer(layer);
  const double took = watch.Seconds();
  counters_.total_s += took;
  counters_.cold.busy_s += took - (counters_.wait_s - waited);
  if (tokens != 1) return OkStatus();
  ++counters_.cold.tokens;
  counters_.cold.active += cold.found();
  return OkStatus();
}

Status HostSharedFfn::Find(int layer, int tokens, bool lossless, ffn::SparseFfn& cold) {
  std::copy_n(exchange_.host().x, Area(tokens, model_.config().hidden_size), hidden_.x.data());
  for (int t = 0; t < tokens; ++t) nn::QuantizeToken(ops_, hidden_, t);
  return cold.Find(layer, {hidden_, exchange_.host().residual, tokens},
                   cold.PolicyFor(layer, lossless), lossless);
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
  if (cold != nullptr) return cold->ShareSum(layer, first, tokens, {.maxima = maxima});
  std::fill_n(maxima, Cells(tokens) / kernels::kActivationBlock, 0.0F);
}

void HostSharedFfn::FillSums(int layer, int first, int tokens, ffn::SparseFfn* cold,
                             const float* maxima) {
  const DeviceExchange::Arrays& host = exchange_.host();
  const std::size_t blocks = Cells(tokens) / kernels::kActivationBlock;
  if (cold != nullptr) {
    for (std::size_t i = 0; i < blocks; ++i) limits_[i] = std::max(maxima[i], host.home_maxima[i]);
    return cold->ShareSum(layer, first, tokens,
                          {nullptr, limits_.data(), host.high, host.low, host.minimums});
  }
  std::fill_n(host.high, Cells(tokens), 0);
  std::fill_n(host.low, Cells(tokens), 0);
  std::fill_n(host.minimums, blocks, 0.0F);
}

}  // namespace thermocline::gpu
