#include "engine/nn/kv_pool.h"

#include <utility>

namespace thermocline::nn {
namespace {

// The bytes of 64 positions of one layer.
std::size_t LayerBytes(const model::ModelConfig& config, kernels::KvType type) {
  return config.num_key_value_heads * (kernels::KeyBlockBytes(type, config.head_dim) +
                                       kernels::ValueBlockBytes(type, config.head_dim));
}

}  // namespace

std::size_t KvPool::BlockBytes(const model::ModelConfig& config, kernels::KvType type) {
  std::size_t bytes = 0;
  for (int layer = 0; layer < config.num_hidden_layers; ++layer)
    bytes += config.OwnsKv(layer) ? LayerBytes(config, type) : 0;
  return bytes;
}

ByKvKind<std::size_t> KvPool::BlockBytesByKind(const model::ModelConfig& config,
                                               kernels::KvType type) {
  ByKvKind<std::size_t> bytes;
  for (int layer = 0; layer < config.num_hidden_layers; ++layer) {
    if (!config.OwnsKv(layer)) continue;
    bytes[config.WindowOf(layer) > 0 ? KvKind::kWindow : KvKind::kWhole] +=
        LayerBytes(config, type);
  }
  return bytes;
}

Result<std::unique_ptr<KvPool>> KvPool::Create(const Params& p) {
  if (kernels::IsQuantized(p.type) && p.config.head_dim % kernels::kActivationBlock != 0) {
    return base::InvalidArgument("a ", kernels::Traits(kernels::KeyType(p.type)).name,
                                 " KV cache needs heads of a multiple of 32 dimensions; this "
                                 "model's have ",
                                 p.config.head_dim, ": use f16");
  }
  ASSIGN_OR_RETURN(StatePool states, StatePool::Create(p.config, p.states, p.pending));
  auto pool = std::unique_ptr<KvPool>(new KvPool(std::move(states)));
  pool->type_ = p.type;
  pool->heads_ = p.config.num_key_value_heads;
  pool->key_bytes_ = kernels::KeyBlockBytes(p.type, p.config.head_dim);
  pool->value_bytes_ = kernels::ValueBlockBytes(p.type, p.config.head_dim);
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
                                             "engine.prefix_cache_bytes)"));
    }
    arena.memory = *std::move(memory);
  }
  arena.holders.resize(blocks);
  for (int block = blocks - 1; block >= 0; --block) arena.free.push_back(block);
  return arena;
}

void KvPool::PlaceLayers(const model::ModelConfig& config) {
  KvCount layers;
  for (int layer = 0; layer < config.num_hidden_layers; ++layer) {
    const KvKind kind =
        window_ > 0 && config.WindowOf(layer) > 0 ? KvKind::kWindow : KvKind::kWhole;
    places_.push_back({kind, layers[kind]});
    layers[kind] += config.OwnsKv(layer) ? 1 : 0;
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
