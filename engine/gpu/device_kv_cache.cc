#include "engine/gpu/device_kv_cache.h"

namespace thermocline::gpu {

DeviceKvCache::DeviceKvCache(const Params& p)
    : type_(p.type),
      blocks_(p.blocks),
      kv_heads_(p.config.num_key_value_heads),
      key_bytes_(kernels::KeyBlockBytes(p.type, p.config.head_dim)),
      head_bytes_(key_bytes_ + kernels::ValueBlockBytes(p.type, p.config.head_dim)),
      block_bytes_((p.layers * kv_heads_) * head_bytes_) {}

Status DeviceKvCache::Allocate(device::DeviceStream& stream) {
  ASSIGN_OR_RETURN(memory_,
                   device::DeviceBuffer::Allocate(stream.device(), "keys and values", bytes()));
  return stream.Fill(memory_.data(), 0, memory_.bytes());
}

Status DeviceKvCache::Follow(nn::KvCache& cache, device::DeviceStream& stream) const {
  CHECK_LE(cache.pool().blocks(), blocks_);
  CHECK(cache.pool().type() == kernels::HostKvType(type_));
  const auto copy = cache.TakeCopy();
  if (!copy.has_value()) return OkStatus();
  return stream.CopyOnDevice(block(copy->to), block(copy->from), block_bytes_);
}

void DeviceKvCache::WriteTable(const nn::KvCache& cache, std::uint8_t** table) const {
  for (const int index : cache.blocks()) *table++ = block(index);
}

kernels::DeviceKv DeviceKvCache::View(int layer, std::uint8_t* const* const* tables) const {
  const std::size_t at = (layer * kv_heads_) * head_bytes_;
  return {.type = type_,
          .tables = tables,
          .keys_offset = at,
          .values_offset = at + key_bytes_,
          .head_stride = head_bytes_};
}

}  // namespace thermocline::gpu
