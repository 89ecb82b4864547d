#include "engine/nn/kv_cache.h"

#include <cstring>

#include "engine/base/index.h"

namespace thermocline::nn {

KvCache::KvCache(KvPool& pool, int capacity) : pool_(&pool), capacity_(capacity) {
  blocks_.reserve(BlocksFor(capacity));
  data_.reserve(blocks_.capacity());
}

Result<std::unique_ptr<KvCache>> KvCache::Create(const model::ModelConfig& config, int capacity,
                                                 kernels::KvType type) {
  ASSIGN_OR_RETURN(auto pool,
                   KvPool::Create({.config = config, .blocks = BlocksFor(capacity), .type = type}));
  auto cache = std::make_unique<KvCache>(*pool, capacity);
  cache->own_pool_ = std::move(pool);
  return cache;
}

void KvCache::SetLength(int length) {
  CHECK(length >= 0 && length <= length_);
  length_ = length;
  while (base::IntSize(blocks_) > BlocksFor(length)) {
    Release(blocks_.back());
    blocks_.pop_back();
    data_.pop_back();
  }
}

bool KvCache::Reserve(int tokens) {
  CHECK_LE(length_ + tokens, capacity_);
  copied_.reset();
  if (tokens > 0 && SharesLastBlock()) {  // copy before writing
    const int copy = pool_->Take();
    if (copy < 0) return false;
    std::memcpy(pool_->data(copy), data_.back(), pool_->block_bytes());
    if (blocks_.back() != kLent) copied_ = {blocks_.back(), copy};
    Release(blocks_.back());
    blocks_.back() = copy;
    data_.back() = pool_->data(copy);
  }
  while (base::IntSize(blocks_) < BlocksFor(length_ + tokens)) {
    const int block = pool_->Take();
    if (block < 0) return false;
    Add(block, pool_->data(block));
  }
  return true;
}

int KvCache::BlocksWanted(int tokens) const {
  return BlocksFor(length_ + tokens) - base::IntSize(blocks_) +
         (tokens > 0 && SharesLastBlock() ? 1 : 0);
}

void KvCache::Swap(KvCache& other) {
  CHECK(pool_ == other.pool_ && capacity_ == other.capacity_);
  std::swap(blocks_, other.blocks_);
  std::swap(data_, other.data_);
  std::swap(length_, other.length_);
  copied_.reset();
  other.copied_.reset();
}

void KvCache::Clear() { SetLength(0); }

void KvCache::Adopt(std::span<const int> blocks, int tokens) {
  CHECK(length_ == 0 && blocks_.empty());
  CHECK_LE(tokens, capacity_);
  for (int i = 0; i < BlocksFor(tokens); ++i) {
    const int block = blocks[i];
    pool_->AddHolder(block);
    Add(block, pool_->data(block));
  }
  length_ = tokens;
}

void KvCache::Share(const KvCache& other, int tokens) {
  CHECK(length_ == 0 && blocks_.empty());
  CHECK(tokens <= other.length_ && tokens <= capacity_);
  CHECK(pool_->block_bytes() == other.pool_->block_bytes());
  for (std::size_t i = 0; i < static_cast<std::size_t>(BlocksFor(tokens)); ++i) {
    const int block = pool_ == other.pool_ ? other.blocks_[i] : kLent;
    if (block != kLent) pool_->AddHolder(block);
    Add(block, other.data_[i]);
  }
  length_ = tokens;
}

}  // namespace thermocline::nn
