// Layers at home on the device whose cold neurons the CPU computes: both ends of each exchange.
#include <algorithm>
#include <chrono>
#include <cstring>

#include "engine/gpu/device_forward.h"
#include "engine/nn/offset.h"

namespace thermocline::gpu {
namespace {

using Flag = DeviceHandOff::Flag;

std::size_t Area(int a, int b) { return static_cast<std::size_t>(a) * static_cast<std::size_t>(b); }

double Seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

bool DeviceForward::SendsResidual(int layer) const {
  return modes_[static_cast<std::size_t>(layer)] == FfnMode::kLowRank;
}

// Batches of kShareTokens, an exchange each; of float types one exchange for all.
Status DeviceForward::FeedForwardShared(int layer, int tokens, const DeviceFfn::Output& out) {
  device::DeviceStream& stream = model_.stream();
  const auto* residual = step_ + residual_at_;
  const std::size_t bytes = Area(tokens, config_.hidden_size) * sizeof(float);
  RETURN_IF_ERROR(hand_off_.Begin(stream));
  if (SendsResidual(layer)) RETURN_IF_ERROR(stream.CopyToHost(host_.residual, residual, bytes));
  RETURN_IF_ERROR(
      hand_off_.Publish(stream, Flag::kDeviceInput, hidden_.x, host_.x, device_.x, bytes));
  for (int first = 0; first < tokens; first += ffn::kShareTokens) {
    const int count = std::min(ffn::kShareTokens, tokens - first);
    RETURN_IF_ERROR(SharedBatch(layer, first, count, out));
  }
  return DeviceFfn::SumsFloats(model_.layer(layer)) ? AddHostOutput(layer, tokens, out)
                                                    : OkStatus();
}

Status DeviceForward::SharedBatch(int layer, int first, int tokens, const DeviceFfn::Output& out) {
  device::DeviceStream& stream = model_.stream();
  const DeviceLayer& w = model_.layer(layer);
  const int d = config_.hidden_size;
  auto* residual = reinterpret_cast<float*>(step_ + residual_at_);
  const DeviceFfn::Output mine{out.data + nn::Offset(first, d), out.accumulate};
  if (first > 0 && !DeviceFfn::SumsFloats(w)) RETURN_IF_ERROR(hand_off_.Begin(stream));
  RETURN_IF_ERROR(ffn_.Find(layer, modes_[static_cast<std::size_t>(layer)],
                            {TokensFrom(hidden_, first), residual + nn::Offset(first, d), tokens}));
  if (DeviceFfn::SumsFloats(w)) {
    RETURN_IF_ERROR(ffn_.Sum(layer, tokens, nullptr));
    return ffn_.Finish(layer, tokens, nullptr, mine);
  }
  const std::size_t cells = Area(tokens * runs_, d);
  const float* host_maxima = host_.host_maxima[exchanges_put_++ % 2];
  RETURN_IF_ERROR(ffn_.Maxima(layer, tokens));
  RETURN_IF_ERROR(hand_off_.Publish(stream, Flag::kDeviceMaxima, ffn_.maxima(), host_.maxima,
                                    device_.maxima, cells / 32 * sizeof(float)));
  RETURN_IF_ERROR(hand_off_.Await(stream, Flag::kHostMaxima));
  RETURN_IF_ERROR(stream.CopyToDevice(other_limits_, host_maxima, cells / 32 * sizeof(float)));
  RETURN_IF_ERROR(ffn_.Sum(layer, tokens, other_limits_));
  RETURN_IF_ERROR(hand_off_.Await(stream, Flag::kHostSums));
  RETURN_IF_ERROR(stream.CopyToDevice(other_high_, host_.high, cells * sizeof(std::int32_t)));
  RETURN_IF_ERROR(stream.CopyToDevice(other_low_, host_.low, cells * sizeof(std::int32_t)));
  if (DeviceFfn::HasMinimums(w))
    RETURN_IF_ERROR(
        stream.CopyToDevice(other_minimums_, host_.minimums, cells / 32 * sizeof(float)));
  const DeviceFfn::Other other{other_limits_, other_high_, other_low_, other_minimums_};
  return ffn_.Finish(layer, tokens, &other, mine);
}

Status DeviceForward::AddHostOutput(int, int tokens, const DeviceFfn::Output& out) {
  RETURN_IF_ERROR(hand_off_.Await(model_.stream(), Flag::kHostSums));
  RETURN_IF_ERROR(model_.stream().CopyToDevice(other_out_, host_.out,
                                               Area(tokens, config_.hidden_size) * sizeof(float)));
  return Add(out.data, other_out_, tokens);
}

Status DeviceForward::Serve(int layer, const Step& step, ffn::SparseFfn& cold) {
  const double begin = Seconds(), waited = counters_.wait_s;
  const std::size_t n = Area(step.tokens, config_.hidden_size);
  hand_off_.Begin();
  RETURN_IF_ERROR(hand_off_.Wait(Flag::kDeviceInput));
  ffn::SparseFfn* part = &cold;
  if (cold_error_.ok()) {
    std::copy_n(host_.x, n, cold_hidden_.x.data());
    for (int t = 0; t < step.tokens; ++t) nn::QuantizeToken(cpu_, cold_hidden_, t);
    cold_error_ = cold.Find(layer, {cold_hidden_, host_.residual, step.tokens},
                            cold.PolicyFor(layer, step.lossless), step.lossless);
  }
  // The device waits for numbers all the same.
  if (!cold_error_.ok()) part = nullptr;
  if (DeviceFfn::SumsFloats(model_.layer(layer))) {
    RETURN_IF_ERROR(ServeFloats(layer, step.tokens, part));
  } else {
    for (int first = 0; first < step.tokens; first += ffn::kShareTokens) {
      if (first > 0) hand_off_.Begin();
      RETURN_IF_ERROR(
          ServeBatch(layer, first, std::min(ffn::kShareTokens, step.tokens - first), part));
    }
  }
  if (part == nullptr) return OkStatus();
  cold.EndLayer(layer);
  const double took = Seconds() - begin;
  counters_.total_s += took;
  counters_.cold.busy_s += took - (counters_.wait_s - waited);
  if (step.tokens != 1) return OkStatus();
  ++counters_.cold.tokens;
  counters_.cold.active += cold.found();
  return OkStatus();
}

Status DeviceForward::ServeFloats(int layer, int tokens, ffn::SparseFfn* cold) {
  if (cold != nullptr) {
    cold->SumFound(layer, tokens, host_.out, false);
  } else {
    std::fill_n(host_.out, Area(tokens, config_.hidden_size), 0.0F);
  }
  hand_off_.Raise(Flag::kHostSums);
  return OkStatus();
}

Status DeviceForward::ServeBatch(int layer, int first, int tokens, ffn::SparseFfn* cold) {
  const std::size_t cells = Area(tokens * runs_, config_.hidden_size);
  float* maxima = host_.host_maxima[exchanges_served_++ % 2];
  if (cold != nullptr) {
    cold->ShareSum(layer, first, tokens, {.maxima = maxima});
  } else {
    std::fill_n(maxima, cells / 32, 0.0F);
  }
  hand_off_.Raise(Flag::kHostMaxima);
  const double begin = Seconds();
  RETURN_IF_ERROR(hand_off_.Wait(Flag::kDeviceMaxima));
  counters_.wait_s += Seconds() - begin;
  if (cold != nullptr) {
    for (std::size_t i = 0; i < cells / 32; ++i) limits_[i] = std::max(maxima[i], host_.maxima[i]);
    cold->ShareSum(layer, first, tokens,
                   {nullptr, limits_.data(), host_.high, host_.low, host_.minimums});
  } else {
    std::fill_n(host_.high, cells, 0);
    std::fill_n(host_.low, cells, 0);
    std::fill_n(host_.minimums, cells / 32, 0.0F);
  }
  hand_off_.Raise(Flag::kHostSums);
  return OkStatus();
}

}  // namespace thermocline::gpu
