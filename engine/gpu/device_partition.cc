#include "engine/gpu/device_partition.h"

#include <algorithm>

#include "engine/base/stopwatch.h"
#include "engine/nn/offset.h"

namespace thermocline::gpu {
namespace {

using Flag = DeviceHandOff::Flag;

}  // namespace

DevicePartition::DevicePartition(const Params& p)
    : model_(p.model),
      config_(p.model.config()),
      ffn_(p.ffn),
      health_(p.health),
      runs_(p.ffn.runs()),
      exchange_({.device = p.model.device(),
                 .tokens_max = p.tokens_max,
                 .hidden_size = config_.hidden_size,
                 .runs = runs_}),
      graphs_(p.model.layers().size()),
      ffn_counters_(p.model.layers().size()) {
  AddActivations(work_, p.tokens_max, config_.hidden_size, &hidden_);
  work_.Add(&residual_, Area(p.tokens_max, config_.hidden_size));
  work_.Add(&out_, Area(p.tokens_max, config_.hidden_size));
  work_.Add(&limits_, Area(ffn::kShareTokens * runs_, config_.hidden_size) / 32);
}

Status DevicePartition::Allocate() {
  RETURN_IF_ERROR(work_.Allocate(model_.device()));
  return exchange_.Allocate();
}

void DevicePartition::DropGraphs() {
  for (auto& graph : graphs_) graph.Drop();
}

void DevicePartition::RecordError(const Status& status) {
  if (status.ok() || !status_.ok()) return;
  status_ = status;
  health_.Fail(status);
}

Status DevicePartition::Wait(Flag flag) {
  Status status = exchange_.flags().Wait(flag);
  counters_.busy_s += busy_.Seconds();
  return status;
}

void DevicePartition::Start(const Job& job) {
  busy_.Restart();
  layer_ = job.layer;
  tokens_ = job.input.tokens;
  decoded_ = job.input.decoded;
  first_ = 0;
  const bool whole = job.policy.mode == FfnMode::kDense || tokens_ > ffn::kSparseTokensMax;
  mode_ = whole ? FfnMode::kExact : job.policy.mode;
  status_ = OkStatus();
  const std::size_t n = Area(tokens_, config_.hidden_size);
  std::copy_n(job.input.hidden.x.data(), n, exchange_.host().x);
  if (mode_ == FfnMode::kLowRank) std::copy_n(job.input.residual, n, exchange_.host().residual);
  if (!whole) RecordError(ffn_.SetShift(layer_, job.policy));
  if (status_.ok()) RecordError(Put());
  exchange_.flags().Begin();
}

// Enqueues the input and the first batch; with one token that is everything.
Status DevicePartition::Put() {
  device::DeviceStream& stream = model_.stream();
  const int count = std::min(tokens_, ffn::kShareTokens);
  if (tokens_ > 1) {
    RETURN_IF_ERROR(PutInput(tokens_));
    return PutBatch(0, count);
  }
  auto& graph = graphs_[layer_];
  return graph.Launch(stream, mode_, [this]() -> Status {
    RETURN_IF_ERROR(PutInput(1));
    return PutBatch(0, 1);
  });
}

Status DevicePartition::PutInput(int tokens) {
  device::DeviceStream& stream = model_.stream();
  const std::size_t bytes = Area(tokens, config_.hidden_size) * sizeof(float);
  RETURN_IF_ERROR(stream.CopyToDevice(hidden_.x, exchange_.host().x, bytes));
  if (mode_ == FfnMode::kLowRank)
    RETURN_IF_ERROR(stream.CopyToDevice(residual_, exchange_.host().residual, bytes));
  if (hidden_.q == nullptr) return OkStatus();
  return model_.device().Check(
      model_.ops().dense.quantize({.x = hidden_, .tokens = tokens}, stream.handle()),
      "rounding the input of neurons");
}

Status DevicePartition::PutBatch(int first, int tokens) {
  const DeviceLayer& w = model_.layer(layer_);
  device::DeviceStream& stream = model_.stream();
  const int d = config_.hidden_size;
  if (DeviceFfn::SumsFloats(w)) return PutFloats(tokens_);
  RETURN_IF_ERROR(exchange_.flags().Begin(stream));
  RETURN_IF_ERROR(ffn_.Find(
      layer_, mode_, {TokensFrom(hidden_, first), residual_ + nn::Offset(first, d), tokens}));
  RETURN_IF_ERROR(ffn_.Maxima(layer_, tokens));
  const std::size_t cells = Area(tokens * runs_, d);
  RETURN_IF_ERROR(exchange_.flags().Publish(
      stream, Flag::kDeviceMaxima, ffn_.maxima(), exchange_.host().maxima[0],
      exchange_.on_device().maxima[0], cells / 32 * sizeof(float)));
  RETURN_IF_ERROR(exchange_.flags().Await(stream, Flag::kHostMaxima));
  RETURN_IF_ERROR(
      stream.CopyToDevice(limits_, exchange_.host().home_maxima, cells / 32 * sizeof(float)));
  RETURN_IF_ERROR(ffn_.Sum(layer_, tokens, limits_));
  if (decoded_ || tokens_ == 1) RETURN_IF_ERROR(ffn_.ReadCounts(layer_, 1));
  if (DeviceFfn::HasMinimums(w))
    RETURN_IF_ERROR(
        stream.CopyToHost(exchange_.host().minimums, ffn_.minimums(), cells / 32 * sizeof(float)));
  RETURN_IF_ERROR(
      stream.CopyToHost(exchange_.host().high, ffn_.high(), cells * sizeof(std::int32_t)));
  return exchange_.flags().Publish(stream, Flag::kDeviceSums, ffn_.low(), exchange_.host().low,
                                   exchange_.on_device().low, cells * sizeof(std::int32_t));
}

Status DevicePartition::PutFloats(int tokens) {
  device::DeviceStream& stream = model_.stream();
  RETURN_IF_ERROR(exchange_.flags().Begin(stream));
  RETURN_IF_ERROR(ffn_.Run(layer_, mode_, {hidden_, residual_, tokens}, {out_, false, false}));
  RETURN_IF_ERROR(ffn_.ReadCounts(layer_, 1));
  return exchange_.flags().Publish(stream, Flag::kDeviceSums, out_, exchange_.host().out,
                                   exchange_.on_device().out,
                                   Area(tokens, config_.hidden_size) * sizeof(float));
}

Result<const float*> DevicePartition::Maxima() {
  if (first_ > 0 && status_.ok()) {
    busy_.Restart();
    RecordError(PutBatch(first_, std::min(ffn::kShareTokens, tokens_ - first_)));
    exchange_.flags().Begin();
  }
  if (status_.ok()) RecordError(Wait(Flag::kDeviceMaxima));
  if (!status_.ok()) return status_;
  return exchange_.host().maxima[0];
}

void DevicePartition::Sum(const float* limits) {
  if (!status_.ok()) return;
  busy_.Restart();
  const int count = std::min(ffn::kShareTokens, tokens_ - first_);
  std::copy_n(limits, Area(count * runs_, config_.hidden_size) / 32, exchange_.host().home_maxima);
  exchange_.flags().Raise(Flag::kHostMaxima);
}

Result<kernels::FinishSumParams::Part> DevicePartition::Await() {
  if (status_.ok()) RecordError(Wait(Flag::kDeviceSums));
  if (status_.ok()) RecordError(exchange_.flags().CheckWaits());
  if (!status_.ok()) return status_;
  Count();
  first_ += ffn::kShareTokens;
  return kernels::FinishSumParams::Part{exchange_.host().high, exchange_.host().low,
                                        exchange_.host().minimums};
}

Result<const float*> DevicePartition::AwaitOutput() {
  if (status_.ok()) RecordError(Wait(Flag::kDeviceSums));
  if (!status_.ok()) return status_;
  Count();
  return exchange_.host().out;
}

void DevicePartition::Count() {
  if (!decoded_) return;
  const bool floats = DeviceFfn::SumsFloats(model_.layer(layer_));
  const int tokens = floats ? tokens_ : std::min(ffn::kShareTokens, tokens_ - first_);
  // The counts cover at most the last kSparseTokensMax tokens.
  const DeviceFfn::Counts found =
      tokens > ffn::kSparseTokensMax ? ffn_.all(layer_) : ffn_.counts(layer_);
  counters_.active += found.live;
  ffn::FfnCounters& c = ffn_counters_[layer_];
  ffn_.AddCounts(layer_, mode_, found, tokens, c);
  if (first_ + tokens < tokens_) return;
  ++counters_.steps;
  ++c.steps;
}

}  // namespace thermocline::gpu
