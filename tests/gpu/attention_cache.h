// A KV cache on the host and on the device, for checks of rotation and attention.
#pragma once

#include <numeric>

#include "tests/gpu/checks_dense.h"
#include "tests/gpu/dense_inputs.h"

namespace thermocline::gpu {

using kernels::kKvBlock;
using kernels::KvType;

struct AttentionCase {
  KvType type;
  int heads, kv_heads, head_dim;
  int tokens, position;
  int window;  // 0: none
};

inline std::string Text(const AttentionCase& c) {
  constexpr const char* kNames[] = {"f16", "q8_0", "f32"};
  return std::string(kNames[static_cast<int>(c.type)]) + " heads " + std::to_string(c.heads) + "/" +
         std::to_string(c.kv_heads) + " of " + std::to_string(c.head_dim) + " T" +
         std::to_string(c.tokens) + " at " + std::to_string(c.position) +
         (c.window > 0 ? " window " + std::to_string(c.window) : "");
}

inline std::vector<int> PositionsOf(const AttentionCase& c) {
  std::vector<int> positions(static_cast<std::size_t>(c.tokens));
  std::iota(positions.begin(), positions.end(), c.position);
  return positions;
}

// The same cache on the host and on the device. Blocks are in reverse order; each begins with the
// bytes of another layer.
class CacheCopies {
 public:
  static constexpr std::size_t kAhead = 64;
  using Table = std::uint8_t* const*;

  CacheCopies(const kernels::DeviceOps& ops, const AttentionCase& c)
      : case_(c),
        count_((c.position + c.tokens + kKvBlock - 1) / kKvBlock),
        key_bytes_(kernels::KeyBlockBytes(c.type, c.head_dim)),
        stride_(key_bytes_ + kernels::ValueBlockBytes(c.type, c.head_dim)),
        block_bytes_(kAhead + stride_ * static_cast<std::size_t>(c.kv_heads)),
        host_(block_bytes_ * static_cast<std::size_t>(count_)),
        device_(ops, host_.size()),
        pointers_(ops, static_cast<std::size_t>(count_)),
        tables_(ops, std::vector<Table>(static_cast<std::size_t>(c.tokens), pointers_.get())) {
    std::vector<std::uint8_t*> there;
    for (int i = count_ - 1; i >= 0; --i) {
      here_.push_back(host_.data() + static_cast<std::size_t>(i) * block_bytes_);
      there.push_back(device_.get() + static_cast<std::size_t>(i) * block_bytes_);
    }
    pointers_.Set(there);
  }

  void Store(int position, int head, const float* key, const float* value) {
    std::uint8_t* at = host_.data() +
                       static_cast<std::size_t>(count_ - 1 - position / kKvBlock) * block_bytes_ +
                       keys_offset(head);
    kernels::StoreKeyAndValue({.type = case_.type,
                               .head_dim = case_.head_dim,
                               .slot = position % kKvBlock,
                               .key = key,
                               .value = value,
                               .keys = at,
                               .values = at + key_bytes_});
  }
  void Upload() { device_.Set(host_); }
  double DifferingBytes() const { return Differing(device_.Get(), host_); }

  std::size_t keys_offset(int head) const {
    return kAhead + static_cast<std::size_t>(head) * stride_;
  }
  std::size_t values_offset(int head) const { return keys_offset(head) + key_bytes_; }
  const std::uint8_t* const* blocks() const { return here_.data(); }
  Table table() const { return pointers_; }
  std::vector<std::uint8_t> Bytes() const { return device_.Get(); }
  kernels::DeviceKv device() const {
    return {case_.type, tables_, keys_offset(0), values_offset(0), stride_};
  }

 private:
  const AttentionCase case_;
  const int count_;
  const std::size_t key_bytes_, stride_, block_bytes_;
  std::vector<std::uint8_t> host_;
  std::vector<const std::uint8_t*> here_;
  Array<std::uint8_t> device_;
  Array<std::uint8_t*> pointers_;
  Array<Table> tables_;
};

}  // namespace thermocline::gpu
