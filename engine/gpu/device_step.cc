#include "engine/gpu/device_step.h"

#include <cstring>

#include "engine/base/index.h"

namespace thermocline::gpu {

DeviceStep::DeviceStep(const Params& p, DeviceArena& arena)
    : hidden_size_(p.hidden_size),
      tokens_max_(p.tokens_max),
      parts_max_(p.parts_max),
      returns_residual_(p.returns_residual),
      tables_at_(TablesAt(p)),
      residual_at_(ResidualAt(p)),
      blocks_bytes_(BlocksBytes(p)) {
  arena.Add(&data_, residual_at_ + ResidualBytes(tokens_max_) + blocks_bytes_);
}

std::size_t DeviceStep::TablesAt(const Params& p) {
  return Aligned(Area(p.tokens_max, sizeof(std::int32_t)));
}

std::size_t DeviceStep::ResidualAt(const Params& p) {
  return TablesAt(p) + Aligned(Area(p.tokens_max, sizeof(void*)));
}

std::size_t DeviceStep::BlocksBytes(const Params& p) {
  return Area(p.parts_max, nn::BlocksFor(p.context_length)) * sizeof(void*);
}

std::size_t DeviceStep::HostBytes(const Params& p) {
  const std::size_t residual = Area(p.tokens_max, p.hidden_size) * sizeof(float);
  return ResidualAt(p) + BlocksBytes(p) + (p.returns_residual ? 2 : 1) * residual;
}

Status DeviceStep::Allocate(device::Device& device) {
  const std::size_t residual = ResidualBytes(tokens_max_);
  ASSIGN_OR_RETURN(sent_, device::MappedBuffer::Allocate(device, "input",
                                                         residual_at_ + residual + blocks_bytes_));
  if (!returns_residual_) return OkStatus();
  ASSIGN_OR_RETURN(result_, device::MappedBuffer::Allocate(device, "results", residual));
  return OkStatus();
}

Status DeviceStep::Send(std::span<const DevicePart> parts, const DeviceKvCache& kv,
                        const float* residual, device::DeviceStream& stream) {
  CHECK_LE(base::IntSize(parts), parts_max_);
  int tokens = 0;
  for (const DevicePart& part : parts) tokens += part.tokens;
  CHECK_LE(tokens, tokens_max_);
  auto* const bytes = sent_.host<std::uint8_t>();
  auto* position = reinterpret_cast<std::int32_t*>(bytes);
  auto** table = reinterpret_cast<std::uint8_t**>(bytes + tables_at_);
  std::size_t at = residual_at_ + ResidualBytes(tokens);
  for (const DevicePart& part : parts) {
    for (int t = 0; t < part.tokens; ++t) {
      *position++ = part.cache->length() + t;
      *table++ = data_ + at;
    }
    kv.WriteTable(*part.cache, reinterpret_cast<std::uint8_t**>(bytes + at));
    at += part.cache->blocks().size() * sizeof(void*);
  }
  std::memcpy(bytes + residual_at_, residual, ResidualBytes(tokens));
  return stream.CopyToDevice(data_, bytes, at);
}

Status DeviceStep::Return(int tokens, device::DeviceStream& stream) {
  return stream.CopyToHost(result_.host<float>(), residual(), ResidualBytes(tokens));
}

}  // namespace thermocline::gpu
