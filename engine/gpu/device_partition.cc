#include "engine/gpu/device_partition.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "engine/gpu/device_forward.h"
#include "engine/nn/offset.h"

namespace thermocline::gpu {
namespace {

using Flag = DeviceHandOff::Flag;

std::size_t Area(int a, int b) { return static_cast<std::size_t>(a) * static_cast<std::size_t>(b); }

std::size_t Aligned(std::size_t bytes) { return (bytes + 255) / 256 * 256; }

double Seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

DevicePartition::DevicePartition(const Params& p)
    : model_(p.model),
      config_(p.model.config()),
      ffn_(p.ffn),
      owner_(p.owner),
      tokens_max_(p.tokens_max),
      runs_(p.ffn.runs()),
      hand_off_(p.model.device()),
      graphs_(p.model.layers().size()),
      ffn_counters_(p.model.layers().size()) {
  AddActivations(work_, tokens_max_, config_.hidden_size, &hidden_);
  work_.Add(&residual_, Area(tokens_max_, config_.hidden_size));
  work_.Add(&out_, Area(tokens_max_, config_.hidden_size));
  work_.Add(&limits_, Area(ffn::kShareTokens * runs_, config_.hidden_size) / 32);
}

Status DevicePartition::Allocate() {
  device::Device& device = model_.device();
  RETURN_IF_ERROR(hand_off_.Allocate());
  RETURN_IF_ERROR(work_.Allocate(device));
  const std::size_t tokens = Area(tokens_max_, config_.hidden_size),
                    cells = Area(ffn::kShareTokens * runs_, config_.hidden_size);
  ASSIGN_OR_RETURN(mapped_, device::MappedBuffer::Allocate(device, "hand-off",
                                                           3 * tokens * sizeof(float) +
                                                               2 * cells * sizeof(std::int32_t) +
                                                               3 * cells / 8 + 4096));
  const auto layout = [&](std::byte* at, Exchange& e) {
    const auto take = [&]<typename T>(T*& out, std::size_t count) {
      out = reinterpret_cast<T*>(at);
      at += Aligned(count * sizeof(T));
    };
    for (float** out : {&e.x, &e.residual, &e.out}) take(*out, tokens);
    for (float** out : {&e.limits, &e.maxima, &e.minimums}) take(*out, cells / 32);
    take(e.high, cells);
    take(e.low, cells);
  };
  layout(mapped_.host<std::byte>(), host_);
  layout(mapped_.on_device<std::byte>(), device_);
  return OkStatus();
}

void DevicePartition::DropGraphs() {
  for (LayerGraph& layer : graphs_) layer.graph.reset();
}

void DevicePartition::Release() {
  if (mapped_.bytes() > 0) hand_off_.Release();
}

void DevicePartition::Note(const Status& status) {
  if (status.ok() || !status_.ok()) return;
  status_ = status;
  owner_.Fail(status);
}

Status DevicePartition::Wait(Flag flag) {
  const Status status = hand_off_.Wait(flag);
  counters_.busy_s += Seconds() - since_;
  return status;
}

void DevicePartition::Start(const Job& job) {
  since_ = Seconds();
  layer_ = job.layer;
  tokens_ = job.input.tokens;
  first_ = 0;
  const bool whole = job.policy.mode == FfnMode::kDense || tokens_ > ffn::kSparseTokensMax;
  mode_ = whole ? FfnMode::kExact : job.policy.mode;
  status_ = OkStatus();
  const std::size_t n = Area(tokens_, config_.hidden_size);
  std::copy_n(job.input.hidden.x.data(), n, host_.x);
  if (mode_ == FfnMode::kLowRank) std::copy_n(job.input.residual, n, host_.residual);
  if (!whole) Note(ffn_.SetShift(layer_, job.policy));
  if (status_.ok()) Note(Put());
  hand_off_.Begin();
}

// The input and the first batch; for one token, that is all.
Status DevicePartition::Put() {
  device::DeviceStream& stream = model_.stream();
  const int count = std::min(tokens_, ffn::kShareTokens);
  if (tokens_ > 1) {
    RETURN_IF_ERROR(PutInput(tokens_));
    return PutBatch(0, count);
  }
  LayerGraph& recorded = graphs_[static_cast<std::size_t>(layer_)];
  if (recorded.graph == nullptr || recorded.mode != mode_) {
    recorded.graph.reset();
    RETURN_IF_ERROR(stream.BeginGraph());
    Status put = PutInput(1);
    if (put.ok()) put = PutBatch(0, 1);
    auto graph = stream.EndGraph();
    RETURN_IF_ERROR(put);
    ASSIGN_OR_RETURN(recorded.graph, std::move(graph));
    recorded.mode = mode_;
  }
  return stream.Launch(*recorded.graph);
}

Status DevicePartition::PutInput(int tokens) {
  device::DeviceStream& stream = model_.stream();
  const std::size_t bytes = Area(tokens, config_.hidden_size) * sizeof(float);
  RETURN_IF_ERROR(stream.CopyToDevice(hidden_.x, host_.x, bytes));
  if (mode_ == FfnMode::kLowRank)
    RETURN_IF_ERROR(stream.CopyToDevice(residual_, host_.residual, bytes));
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
  RETURN_IF_ERROR(hand_off_.Begin(stream));
  RETURN_IF_ERROR(ffn_.Find(
      layer_, mode_, {TokensFrom(hidden_, first), residual_ + nn::Offset(first, d), tokens}));
  RETURN_IF_ERROR(ffn_.Maxima(layer_, tokens));
  const std::size_t cells = Area(tokens * runs_, d);
  RETURN_IF_ERROR(hand_off_.Publish(stream, Flag::kDeviceMaxima, ffn_.maxima(), host_.maxima,
                                    device_.maxima, cells / 32 * sizeof(float)));
  RETURN_IF_ERROR(hand_off_.Await(stream, Flag::kHostMaxima));
  RETURN_IF_ERROR(stream.CopyToDevice(limits_, host_.limits, cells / 32 * sizeof(float)));
  RETURN_IF_ERROR(ffn_.Sum(layer_, tokens, limits_));
  if (tokens_ == 1) RETURN_IF_ERROR(ffn_.ReadCounts(layer_, 1));
  if (DeviceFfn::HasMinimums(w))
    RETURN_IF_ERROR(stream.CopyToHost(host_.minimums, ffn_.minimums(), cells / 32 * sizeof(float)));
  RETURN_IF_ERROR(stream.CopyToHost(host_.high, ffn_.high(), cells * sizeof(std::int32_t)));
  return hand_off_.Publish(stream, Flag::kDeviceSums, ffn_.low(), host_.low, device_.low,
                           cells * sizeof(std::int32_t));
}

Status DevicePartition::PutFloats(int tokens) {
  device::DeviceStream& stream = model_.stream();
  RETURN_IF_ERROR(hand_off_.Begin(stream));
  RETURN_IF_ERROR(ffn_.Run(layer_, mode_, {hidden_, residual_, tokens}, {out_, false, false}));
  if (tokens == 1) RETURN_IF_ERROR(ffn_.ReadCounts(layer_, 1));
  return hand_off_.Publish(stream, Flag::kDeviceSums, out_, host_.out, device_.out,
                           Area(tokens, config_.hidden_size) * sizeof(float));
}

Result<const float*> DevicePartition::Maxima() {
  if (first_ > 0 && status_.ok()) {
    since_ = Seconds();
    Note(PutBatch(first_, std::min(ffn::kShareTokens, tokens_ - first_)));
    hand_off_.Begin();
  }
  if (status_.ok()) Note(Wait(Flag::kDeviceMaxima));
  if (!status_.ok()) return status_;
  return host_.maxima;
}

void DevicePartition::Sum(const float* limits) {
  if (!status_.ok()) return;
  since_ = Seconds();
  const int count = std::min(ffn::kShareTokens, tokens_ - first_);
  std::copy_n(limits, Area(count * runs_, config_.hidden_size) / 32, host_.limits);
  hand_off_.Raise(Flag::kHostMaxima);
}

Result<kernels::FinishSumParams::Part> DevicePartition::Await() {
  if (status_.ok()) Note(Wait(Flag::kDeviceSums));
  if (status_.ok()) Note(hand_off_.CheckWaits());
  if (!status_.ok()) return status_;
  first_ += ffn::kShareTokens;
  Count();
  return kernels::FinishSumParams::Part{host_.high, host_.low, host_.minimums};
}

Result<const float*> DevicePartition::AwaitOutput() {
  if (status_.ok()) Note(Wait(Flag::kDeviceSums));
  if (!status_.ok()) return status_;
  Count();
  return host_.out;
}

void DevicePartition::Count() {
  if (tokens_ != 1) return;
  ++counters_.tokens;
  counters_.active += ffn_.counts(layer_).live;
  ffn::FfnCounters& c = ffn_counters_[static_cast<std::size_t>(layer_)];
  ++c.tokens;
  ffn_.AddCounts(layer_, mode_, c);
}

}  // namespace thermocline::gpu
