#include "engine/nn/kv_pool.h"

#include <algorithm>
#include <utility>

namespace thermocline::nn {
namespace {

// The bytes of 64 positions of one layer; 0 if it reads another layer's.
std::size_t LayerBytes(const model::ModelConfig& config, int layer, kernels::KvType asked) {
  if (!config.OwnsKv(layer)) return 0;
  const kernels::KvType type = kernels::HostKvType(asked);
  const model::HeadShape shape = config.HeadsOf(layer);
  return shape.kv_heads *
         (kernels::KeyBlockBytes(type, shape.dim) + kernels::ValueBlockBytes(type, shape.dim));
}

// Returns a size of heads that does not fit blocks of numbers; 0 if there is none.
int UnevenHeads(const model::ModelConfig& config) {
  for (const int dim : {config.head_dim, config.window_head_dim})
    if (dim % kernels::kActivationBlock != 0) return dim;
  return 0;
}

}  // namespace

std::size_t KvPool::BlockBytes(const model::ModelConfig& config, kernels::KvType type) {
  const ByKvKind<std::size_t> bytes = BlockBytesByKind(config, type);
  return bytes.whole + bytes.window;
}

ByKvKind<std::size_t> KvPool::BlockBytesByKind(const model::ModelConfig& config,
                                               kernels::KvType type) {
  ByKvKind<std::size_t> bytes;
  for (int layer = 0; layer < config.num_hidden_layers; ++layer) {
    if (config.architecture->encoder) {
      bytes.whole = std::max(bytes.whole, LayerBytes(config, layer, type));
      continue;
    }
    bytes[config.WindowOf(layer) > 0 ? KvKind::kWindow : KvKind::kWhole] +=
        LayerBytes(config, layer, type);
  }
  return bytes;
}

Result<std::unique_ptr<KvPool>> KvPool::Create(const Params& p) {
  if (const int uneven = UnevenHeads(p.config); kernels::IsQuantized(p.type) && uneven > 0) {
    return base::InvalidArgument("a ", kernels::Traits(kernels::KeyType(p.type)).name,
                                 " KV cache needs heads of a multiple of 32 dimensions; this "
                                 "model's have ",
                                 uneven, ": use f16");
  }
  ASSIGN_OR_RETURN(StatePool states, StatePool::Create(p.config, p.states, p.pending));
  auto pool = std::unique_ptr<KvPool>(new KvPool(std::move(states)));
  pool->type_ = kernels::HostKvType(p.type);
  pool->window_ = p.window_blocks > 0 ? p.config.sliding_window : 0;
  pool->PlaceLayers(p.config);
  const ByKvKind<std::size_t> bytes = pool->window_ > 0
                                          ? BlockBytesByKind(p.config, p.type)
                                          : ByKvKind<std::size_t>{BlockBytes(p.config, p.type), 0};
  ASSIGN_OR_RETURN(pool->arenas_.whole, MakeArena(bytes.whole, p.blocks));
  ASSIGN_OR_RETURN(pool->arenas_.window, MakeArena(bytes.window, p.window_blocks));
  return pool;
}

Result<KvPool::Arena> KvPool::MakeArena(std::size_t block_bytes, int blocks) {
  Arena arena;
  arena.block_bytes = block_bytes;
  if (block_bytes > 0 && blocks > 0) {
    auto memory = base::HugeBuffer::Allocate(block_bytes * blocks);
    if (!memory.ok()) {
      return memory.status().Annotate(StrCat("KV cache of ", blocks * kernels::kKvBlock,
                                             " tokens (lower engine.context_length or "
                                             "prefix_cache.memory)"));
    }
    arena.memory = *std::move(memory);
  }
  arena.holders.resize(blocks);
  for (int block = blocks - 1; block >= 0; --block) arena.free.push_back(block);
  return arena;
}

void KvPool::PlaceLayers(const model::ModelConfig& config) {
  ByKvKind<std::size_t> end;
  for (int layer = 0; layer < config.num_hidden_layers; ++layer) {
    const KvKind kind =
        window_ > 0 && config.WindowOf(layer) > 0 ? KvKind::kWindow : KvKind::kWhole;
    const int dim = config.HeadsOf(layer).dim;
    places_.push_back({kind, end[kind], kernels::KeyBlockBytes(type_, dim),
                       kernels::ValueBlockBytes(type_, dim)});
    if (!config.architecture->encoder) end[kind] += LayerBytes(config, layer, type_);
  }
}

int KvPool::Take(KvKind kind) {
  Arena& arena = arenas_[kind];
  if (arena.free.empty()) return -1;
  const int block = arena.free.back();
  arena.free.pop_back();
  arena.holders[block] = 1;
  return block;
}

void KvPool::Release(KvKind kind, int block) {
  Arena& arena = arenas_[kind];
  int& holders = arena.holders[block];
  CHECK(holders > 0);
  if (--holders == 0) arena.free.push_back(block);
}

std::size_t KvPool::used_bytes() const {
  std::size_t used = 0;
  for (const KvKind kind : kinds()) used += (blocks(kind) - free_blocks(kind)) * block_bytes(kind);
  return used + (states_.states() - states_.free_states()) * states_.state_bytes();
}

}  // namespace thermocline::nn
