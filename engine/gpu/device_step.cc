#include "engine/gpu/device_step.h"

#include <cstring>

namespace thermocline::gpu {

DeviceStep::DeviceStep(const Params& p, DeviceArena& arena)
    : hidden_size_(p.hidden_size),
      tokens_max_(p.tokens_max),
      returns_residual_(p.returns_residual),
      table_at_(TableAt(p)),
      residual_at_(ResidualAt(p)) {
  arena.Add(&data_, residual_at_ + ResidualBytes(tokens_max_));
}

std::size_t DeviceStep::TableAt(const Params& p) {
  return Aligned(Area(p.tokens_max, sizeof(std::int32_t)));
}

std::size_t DeviceStep::ResidualAt(const Params& p) {
  return TableAt(p) + Aligned(Area(nn::BlocksFor(p.context_length), sizeof(void*)));
}

std::size_t DeviceStep::HostBytes(const Params& p) {
  const std::size_t residual = Area(p.tokens_max, p.hidden_size) * sizeof(float);
  return ResidualAt(p) + (p.returns_residual ? 2 : 1) * residual;
}

Status DeviceStep::Allocate(device::Device& device) {
  const std::size_t residual = ResidualBytes(tokens_max_);
  ASSIGN_OR_RETURN(sent_, device::MappedBuffer::Allocate(device, "input", residual_at_ + residual));
  if (!returns_residual_) return OkStatus();
  ASSIGN_OR_RETURN(result_, device::MappedBuffer::Allocate(device, "results", residual));
  return OkStatus();
}

Status DeviceStep::Send(const nn::KvCache& cache, const DeviceKvCache& kv, const float* residual,
                        int tokens, device::DeviceStream& stream) {
  CHECK_LE(tokens, tokens_max_);
  auto* bytes = sent_.host<std::uint8_t>();
  auto* positions = reinterpret_cast<std::int32_t*>(bytes);
  for (int t = 0; t < tokens; ++t) positions[t] = cache.length() + t;
  kv.WriteTable(cache, reinterpret_cast<std::uint8_t**>(bytes + table_at_));
  std::memcpy(bytes + residual_at_, residual, ResidualBytes(tokens));
  return stream.CopyToDevice(data_, bytes, residual_at_ + ResidualBytes(tokens));
}

Status DeviceStep::Return(int tokens, device::DeviceStream& stream) {
  return stream.CopyToHost(result_.host<float>(), residual(), ResidualBytes(tokens));
}

}  // namespace thermocline::gpu
