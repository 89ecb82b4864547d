// The KV cache of the layers at home on a device: blocks in its memory that correspond one to one
// to those of the host's pool, so that a prefix shared by sequences on the host is shared on the
// device too.
//
// A block: [layers, kv heads] of (keys of kKvBlock tokens, values of the same).
#pragma once

#include "engine/device/buffers.h"
#include "engine/device/stream.h"
#include "engine/nn/kv_cache.h"
#include "kernels/device_ops.h"

namespace thermocline::gpu {

// Decode thread only. Owns its memory on the device.
class DeviceKvCache {
 public:
  struct Params {
    const model::ModelConfig& config;
    int layers;  // at home on the device
    int blocks;  // of the host's pool
    kernels::KvType type;
  };
  explicit DeviceKvCache(const Params& params);
  // Called at load, and again after the device was reset: zeros the memory. ResourceExhausted with
  // the table of memory uses; Unavailable.
  Status Allocate(device::DeviceStream& stream);

  // Copies on the device the block that `cache` copied in its last Reserve, if any. Unavailable.
  // Requires: the pool has this cache's type, and no more blocks.
  Status Follow(nn::KvCache& cache, device::DeviceStream& stream) const;
  // Writes the addresses of the device's blocks, in the sequence's order, to `table` [blocks of the
  // cache].
  void WriteTable(const nn::KvCache& cache, std::uint8_t** table) const;
  // One layer's part in the form that kernels take; `tables` [T] are on the device.
  kernels::DeviceKv View(int layer, std::uint8_t* const* const* tables) const;

  kernels::KvType type() const { return type_; }
  std::size_t block_bytes() const { return block_bytes_; }
  // The bytes of device memory.
  std::size_t bytes() const { return block_bytes_ * blocks_; }

 private:
  std::uint8_t* block(int index) const { return memory_.as<std::uint8_t>() + block_bytes_ * index; }

  const kernels::KvType type_;
  const int blocks_, kv_heads_;
  const std::size_t key_bytes_, head_bytes_;  // bytes of a kv head in a block: of K; of K and V
  const std::size_t block_bytes_;
  device::DeviceBuffer memory_;
};

}  // namespace thermocline::gpu
