// The memory of the KV cache: blocks of 64 positions with reference counts.
//
// There are two kinds of blocks: those of layers that see all tokens, and those of layers with a
// window, which a sequence releases once the window has moved on (KvCache). A pool without blocks
// of the second kind holds all layers in the first. A block holds, for each of its layers and kv
// heads, the keys and then the values of its positions, in the layout of kernels/attention.h.
// Several holders may share a prefix's blocks, and then only read them. The layers of an encoder,
// which computes a text layer by layer, use the same memory one after the other.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "engine/base/bytes.h"
#include "engine/base/huge_buffer.h"
#include "engine/base/index.h"
#include "engine/model/model_config.h"
#include "engine/nn/recurrent_state.h"
#include "kernels/attention.h"

namespace thermocline::nn {

inline constexpr int BlocksFor(int tokens) {
  return (tokens + kernels::kKvBlock - 1) / kernels::kKvBlock;
}

enum class KvKind { kWhole, kWindow };
inline constexpr std::array kKvKinds = {KvKind::kWhole, KvKind::kWindow};

// A value for each kind of block.
template <typename T>
struct ByKvKind {
  T whole{}, window{};
  T& operator[](KvKind kind) { return kind == KvKind::kWhole ? whole : window; }
  const T& operator[](KvKind kind) const { return kind == KvKind::kWhole ? whole : window; }
};

// Blocks of each kind, and states of recurrent layers.
struct KvCount : ByKvKind<int> {
  // The analyzer loses the aggregate that is the base, and takes its members for uninitialised.
  KvCount(int whole_blocks = 0, int window_blocks = 0, int of_states = 0)
      : ByKvKind<int>{whole_blocks, window_blocks}, states(of_states) {}  // NOLINT
  int states;
};

// Decode thread only, except the constants. Memory is reserved at once and becomes resident when
// first written.
class KvPool {
 public:
  struct Params {
    const model::ModelConfig& config;
    int blocks = 0;
    kernels::KvType type = kernels::KvType::kF16;  // as asked for; the pool's is its HostKvType
    int window_blocks = 0;  // 0: layers with a window keep all tokens, like the others
    int states = 1;         // of sequences and cached prefixes, if layers are recurrent
    int pending = 0;        // tokens that a sequence with a state may be rolled back by
  };
  // ResourceExhausted if the blocks do not fit the address space; InvalidArgument if the type does
  // not fit the heads.
  static Result<std::unique_ptr<KvPool>> Create(const Params& params);

  // Returns a block with one holder; -1 if all are held.
  int Take(KvKind kind);
  void AddHolder(KvKind kind, int block) { ++arenas_[kind].holders[block]; }
  void Release(KvKind kind, int block);
  int holders(KvKind kind, int block) const { return arenas_[kind].holders[block]; }

  std::uint8_t* data(KvKind kind, int block) {
    Arena& arena = arenas_[kind];
    return base::Octets(arena.memory.data()) + block * arena.block_bytes;
  }
  // The location of a layer's K and V: the kind of its blocks, and the byte offset in a block.
  KvKind kind(int layer) const { return places_[layer].kind; }
  std::size_t keys_offset(int layer, int head) const {
    const Place& place = places_[layer];
    return place.offset + head * (place.key_bytes + place.value_bytes);
  }
  std::size_t values_offset(int layer, int head) const {
    return keys_offset(layer, head) + places_[layer].key_bytes;
  }

  kernels::KvType type() const { return type_; }
  // The kinds of blocks that the pool has.
  std::span<const KvKind> kinds() const { return std::span(kKvKinds).first(window_ > 0 ? 2 : 1); }
  // Tokens that a token of a layer with a window sees, itself included; 0: no such layers.
  int window() const { return window_; }
  int blocks(KvKind kind = KvKind::kWhole) const { return base::IntSize(arenas_[kind].holders); }
  int free_blocks(KvKind kind = KvKind::kWhole) const { return base::IntSize(arenas_[kind].free); }
  bool HasFree(const KvCount& blocks) const {
    return free_blocks(KvKind::kWhole) >= blocks.whole &&
           free_blocks(KvKind::kWindow) >= blocks.window && states_.free_states() >= blocks.states;
  }
  std::size_t block_bytes(KvKind kind) const { return arenas_[kind].block_bytes; }
  // The bytes of 64 positions of all layers.
  std::size_t block_bytes() const { return arenas_.whole.block_bytes + arenas_.window.block_bytes; }
  // The bytes of all memory, including the states'.
  std::size_t bytes() const {
    return arenas_.whole.memory.size() + arenas_.window.memory.size() +
           states_.states() * states_.state_bytes();
  }
  std::size_t used_bytes() const;
  // The states of recurrent layers; empty if there are none.
  StatePool& states() { return states_; }
  const StatePool& states() const { return states_; }

  // The bytes of 64 positions of all layers.
  static std::size_t BlockBytes(const model::ModelConfig& config, kernels::KvType type);
  // The bytes of 64 positions by kind, if layers with a window are separate.
  static ByKvKind<std::size_t> BlockBytesByKind(const model::ModelConfig& config,
                                                kernels::KvType type);

 private:
  struct Arena {
    base::HugeBuffer memory;
    std::vector<int> holders;  // [blocks]
    std::vector<int> free;     // capacity for all: never allocates
    std::size_t block_bytes = 0;
  };
  struct Place {
    KvKind kind = KvKind::kWhole;
    std::size_t offset = 0;                      // of the layer's first head in a block
    std::size_t key_bytes = 0, value_bytes = 0;  // of one head
  };

  explicit KvPool(StatePool states) : states_(std::move(states)) {}
  static Result<Arena> MakeArena(std::size_t block_bytes, int blocks);
  void PlaceLayers(const model::ModelConfig& config);

  StatePool states_;
  ByKvKind<Arena> arenas_;
  std::vector<Place> places_;  // [L]; valid for layers that store K and V
  kernels::KvType type_ = kernels::KvType::kF16;
  int window_ = 0;
};

}  // namespace thermocline::nn
