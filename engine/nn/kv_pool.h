// The memory of keys and values: blocks of 64 positions of all layers, taken and given back.
//
// A block holds, for each layer and kv head, the keys and then the values of its positions, as
// kernels/attention.h lays them out. Blocks are counted: a prefix may be shared by several holders,
// who then only read it.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/base/huge_buffer.h"
#include "engine/base/index.h"
#include "engine/model/model_config.h"
#include "kernels/attention.h"

namespace thermocline::nn {

inline constexpr int BlocksFor(int tokens) {
  return (tokens + kernels::kKvBlock - 1) / kernels::kKvBlock;
}

// Decode thread only, but for the constants. Memory is reserved at once and becomes resident when
// it is first written.
class KvPool {
 public:
  struct Params {
    const model::ModelConfig& config;
    int blocks = 0;
    kernels::KvType type = kernels::KvType::kF16;
  };
  // ResourceExhausted if the blocks do not fit the address space; InvalidArgument if the type does
  // not fit the heads.
  static Result<std::unique_ptr<KvPool>> Create(const Params& params);

  // A block with one holder; -1 if all are held.
  int Take();
  void AddHolder(int block) { ++holders_[block]; }
  void Release(int block);
  int holders(int block) const { return holders_[block]; }

  std::uint8_t* data(int block) {
    return reinterpret_cast<std::uint8_t*>(memory_.data()) + block * block_bytes_;
  }
  std::size_t keys_offset(int layer, int head) const {
    return (layer * heads_ + head) * (key_bytes_ + value_bytes_);
  }
  std::size_t values_offset(int layer, int head) const {
    return keys_offset(layer, head) + key_bytes_;
  }

  kernels::KvType type() const { return type_; }
  int blocks() const { return base::IntSize(holders_); }
  int free_blocks() const { return base::IntSize(free_); }
  std::size_t block_bytes() const { return block_bytes_; }
  std::size_t bytes() const { return memory_.size(); }

  static std::size_t BlockBytes(const model::ModelConfig& config, kernels::KvType type);

 private:
  KvPool() = default;

  base::HugeBuffer memory_;
  std::vector<int> holders_;  // [blocks]
  std::vector<int> free_;     // capacity for all: never allocates
  kernels::KvType type_ = kernels::KvType::kF16;
  int heads_ = 0;
  std::size_t key_bytes_ = 0, value_bytes_ = 0, block_bytes_ = 0;
};

}  // namespace thermocline::nn
