#include "engine/gpu/device_exchange.h"

#include "engine/ffn/ffn_partition.h"
#include "engine/gpu/device_activations.h"

namespace thermocline::gpu {
namespace {

constexpr std::size_t kBlock = kernels::kActivationBlock;  // columns that share a maximum
constexpr std::size_t kArrays = 9;

// The bytes of the arrays: `tokens` floats for each token's arrays, `cells` of each array of sums.
std::size_t ArrayBytes(std::size_t tokens, std::size_t cells) {
  return 3 * tokens * sizeof(float) + 2 * cells * sizeof(std::int32_t) +
         4 * cells / kBlock * sizeof(float) + kArrays * Aligned(1);
}

}  // namespace

std::size_t DeviceExchange::Bytes(const model::ModelConfig& c, int tokens_max) {
  const int runs = kernels::NumSumRuns(c.intermediate_size);
  return ArrayBytes(Area(tokens_max, c.hidden_size), Area(ffn::kShareTokens * runs, c.hidden_size));
}

DeviceExchange::DeviceExchange(const Params& p)
    : device_(p.device),
      tokens_(Area(p.tokens_max, p.hidden_size)),
      cells_(Area(ffn::kShareTokens * p.runs, p.hidden_size)),
      flags_(p.device) {}

Status DeviceExchange::Allocate() {
  RETURN_IF_ERROR(flags_.Allocate());
  ASSIGN_OR_RETURN(
      memory_, device::MappedBuffer::Allocate(device_, "hand-off", ArrayBytes(tokens_, cells_)));
  host_ = Layout(memory_.host<std::byte>());
  on_device_ = Layout(memory_.on_device<std::byte>());
  return OkStatus();
}

DeviceExchange::Arrays DeviceExchange::Layout(std::byte* at) const {
  const auto take = [&at]<typename T>(T*& out, std::size_t count) {
    out = reinterpret_cast<T*>(at);
    at += Aligned(count * sizeof(T));
  };
  Arrays a = {};
  for (float** out : {&a.x, &a.residual, &a.out}) take(*out, tokens_);
  for (float** out : {&a.home_maxima, &a.maxima[0], &a.maxima[1], &a.minimums})
    take(*out, cells_ / kBlock);
  take(a.high, cells_);
  take(a.low, cells_);
  return a;
}

void DeviceExchange::Release() {
  if (memory_.bytes() > 0) flags_.Release();
}

}  // namespace thermocline::gpu
