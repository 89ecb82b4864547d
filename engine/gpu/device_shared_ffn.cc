#include "engine/gpu/device_shared_ffn.h"

#include <algorithm>

#include "engine/ffn/ffn_partition.h"
#include "engine/nn/offset.h"

namespace thermocline::gpu {
namespace {

using Flag = DeviceHandOff::Flag;

// The tokens [first, first + count) of `input` and `out`.
DeviceFfn::Input Part(const DeviceFfn::Input& input, int first, int count, int d) {
  return {TokensFrom(input.hidden, first), input.residual + nn::Offset(first, d), count};
}

DeviceFfn::Output Part(const DeviceFfn::Output& out, int first, int d) {
  return {out.data + nn::Offset(first, d), out.accumulate};
}

}  // namespace

DeviceSharedFfn::DeviceSharedFfn(const Params& p, DeviceArena& arena)
    : model_(p.model), dense_(p.model), ffn_(p.ffn), exchange_(p.exchange) {
  const int d = model_.config().hidden_size;
  const std::size_t sums = Area(ffn::kShareTokens * ffn_.runs(), d);
  arena.Add(&maxima_, sums / kernels::kActivationBlock);
  arena.Add(&minimums_, sums / kernels::kActivationBlock);
  arena.Add(&high_, sums);
  arena.Add(&low_, sums);
  arena.Add(&out_, Area(p.tokens_max, d));
}

Status DeviceSharedFfn::Put(int layer, FfnMode mode, const DeviceFfn::Input& input,
                            const DeviceFfn::Output& out, const OnStream& serve) {
  device::DeviceStream& stream = model_.stream();
  const int d = model_.config().hidden_size;
  const std::size_t bytes = Area(input.tokens, d) * sizeof(float);
  RETURN_IF_ERROR(exchange_.flags().Begin(stream));
  if (mode == FfnMode::kLowRank)  // its predictor reads the residual
    RETURN_IF_ERROR(stream.CopyToHost(exchange_.host().residual, input.residual, bytes));
  RETURN_IF_ERROR(exchange_.flags().Publish(stream, Flag::kDeviceInput, input.hidden.x,
                                            exchange_.host().x, exchange_.on_device().x, bytes));
  if (DeviceFfn::SumsFloats(model_.layer(layer))) {
    RETURN_IF_ERROR(PutFloats(layer, mode, input, out));
    return serve ? serve(0) : OkStatus();
  }
  for (int first = 0; first < input.tokens; first += ffn::kShareTokens) {
    const int count = std::min(ffn::kShareTokens, input.tokens - first);
    if (first > 0) RETURN_IF_ERROR(exchange_.flags().Begin(stream));
    RETURN_IF_ERROR(PutBatch(layer, mode, Part(input, first, count, d), Part(out, first, d)));
    if (serve) RETURN_IF_ERROR(serve(first));
  }
  return OkStatus();
}

Status DeviceSharedFfn::PutFloats(int layer, FfnMode mode, const DeviceFfn::Input& input,
                                  const DeviceFfn::Output& out) {
  const int d = model_.config().hidden_size;
  for (int first = 0; first < input.tokens; first += ffn::kShareTokens) {
    const int count = std::min(ffn::kShareTokens, input.tokens - first);
    RETURN_IF_ERROR(ffn_.Find(layer, mode, Part(input, first, count, d)));
    RETURN_IF_ERROR(ffn_.Sum(layer, count, nullptr));
    RETURN_IF_ERROR(ffn_.Finish(layer, count, nullptr, Part(out, first, d)));
  }
  RETURN_IF_ERROR(exchange_.flags().Await(model_.stream(), Flag::kHostSums));
  RETURN_IF_ERROR(model_.stream().CopyToDevice(out_, exchange_.host().out,
                                               Area(input.tokens, d) * sizeof(float)));
  return dense_.Add(out.data, out_, input.tokens);
}

Status DeviceSharedFfn::PutBatch(int layer, FfnMode mode, const DeviceFfn::Input& input,
                                 const DeviceFfn::Output& out) {
  device::DeviceStream& stream = model_.stream();
  DeviceHandOff& flags = exchange_.flags();
  const DeviceExchange::Arrays &host = exchange_.host(), &mapped = exchange_.on_device();
  const int tokens = input.tokens;
  const std::size_t cells = Area(tokens * ffn_.runs(), model_.config().hidden_size),
                    maxima_bytes = cells / kernels::kActivationBlock * sizeof(float);
  const float* host_maxima = host.maxima[exchanges_++ % 2];
  RETURN_IF_ERROR(ffn_.Find(layer, mode, input));
  RETURN_IF_ERROR(ffn_.Maxima(layer, tokens));
  RETURN_IF_ERROR(flags.Publish(stream, Flag::kDeviceMaxima, ffn_.maxima(), host.home_maxima,
                                mapped.home_maxima, maxima_bytes));
  RETURN_IF_ERROR(flags.Await(stream, Flag::kHostMaxima));
  RETURN_IF_ERROR(stream.CopyToDevice(maxima_, host_maxima, maxima_bytes));
  RETURN_IF_ERROR(ffn_.Sum(layer, tokens, maxima_));
  RETURN_IF_ERROR(TakeSums(layer, cells));
  const DeviceFfn::Other other{maxima_, high_, low_, minimums_};
  return ffn_.Finish(layer, tokens, &other, out);
}

Status DeviceSharedFfn::TakeSums(int layer, std::size_t cells) {
  device::DeviceStream& stream = model_.stream();
  const DeviceExchange::Arrays& host = exchange_.host();
  RETURN_IF_ERROR(exchange_.flags().Await(stream, Flag::kHostSums));
  RETURN_IF_ERROR(stream.CopyToDevice(high_, host.high, cells * sizeof(std::int32_t)));
  RETURN_IF_ERROR(stream.CopyToDevice(low_, host.low, cells * sizeof(std::int32_t)));
  if (!DeviceFfn::HasMinimums(model_.layer(layer))) return OkStatus();
  return stream.CopyToDevice(minimums_, host.minimums,
                             cells / kernels::kActivationBlock * sizeof(float));
}

}  // namespace thermocline::gpu
