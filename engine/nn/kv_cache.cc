#include "engine/nn/kv_cache.h"

#include <algorithm>
#include <cstring>

#include "engine/base/index.h"

namespace thermocline::nn {

KvCache::KvCache(KvPool& pool, int capacity) : pool_(&pool), capacity_(capacity) {
  for (const KvKind kind : pool.kinds()) {
    tables_[kind].blocks.reserve(BlocksFor(capacity));
    tables_[kind].data.reserve(BlocksFor(capacity));
  }
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
  if (state_ >= 0 && length == 0) {
    pool_->states().Release(std::exchange(state_, -1));
    state_length_ = 0;
    state_lost_ = false;
  }
  state_lost_ = state_lost_ || length < state_length_;
  for (const KvKind kind : pool_->kinds()) {
    Table& table = tables_[kind];
    while (base::IntSize(table.blocks) > BlocksFor(length)) {
      Release(kind, table.blocks.back());
      table.blocks.pop_back();
      table.data.pop_back();
    }
  }
  dropped_ = std::min(dropped_, BlocksFor(length));
}

bool KvCache::Reserve(int tokens) {
  CHECK_LE(length_ + tokens, capacity_);
  copied_.reset();
  if (tokens == 0) return true;
  if (!TakeState()) return false;
  DropPassed(BlocksWanted(tokens).window);
  for (const KvKind kind : pool_->kinds()) {
    if (SharesLastBlock(kind) && !CopyLastBlock(kind)) return false;
    while (base::IntSize(tables_[kind].blocks) < BlocksFor(length_ + tokens)) {
      const int block = pool_->Take(kind);
      if (block < 0) return false;
      tables_[kind].Add(block, pool_->data(kind, block));
    }
  }
  // The positions that the next token sees must not have been dropped.
  CHECK_LE(dropped_ * kernels::kKvBlock, std::max(0, length_ + 1 - pool_->window()));
  return true;
}

bool KvCache::TakeState() {
  StatePool& states = pool_->states();
  if (!states.layout().any() || state_ >= 0) return true;
  CHECK_EQ(length_, 0);  // an adopted prefix includes its state
  state_ = states.Take();
  if (state_ < 0) return false;
  const std::span<float> floats = states.data(state_);
  std::fill(floats.begin(), floats.end(), 0.0F);
  return true;
}

bool KvCache::AdoptState(std::span<const float> state, int length) {
  CHECK(state_ < 0);
  state_ = pool_->states().Take();
  if (state_ < 0) return false;
  std::copy(state.begin(), state.end(), pool_->states().data(state_).begin());
  state_length_ = length;
  return true;
}

void KvCache::RestoreState(std::span<const float> state) {
  CHECK(state_ >= 0);
  std::copy(state.begin(), state.end(), pool_->states().data(state_).begin());
  state_length_ = length_;
  state_lost_ = false;
}

bool KvCache::SharesLastBlock(KvKind kind) const {
  if (length_ % kernels::kKvBlock == 0) return false;
  const int last = tables_[kind].blocks.back();
  return last == kLent || pool_->holders(kind, last) > 1;
}

// Replaces the last block, which others share, by a copy of the sequence's own, so that it can be
// written to. Returns false if no block is free.
bool KvCache::CopyLastBlock(KvKind kind) {
  Table& table = tables_[kind];
  const int copy = pool_->Take(kind);
  if (copy < 0) return false;
  if (pool_->block_bytes(kind) > 0)
    std::memcpy(pool_->data(kind, copy), table.data.back(), pool_->block_bytes(kind));
  if (kind == KvKind::kWhole && table.blocks.back() != kLent) copied_ = {table.blocks.back(), copy};
  Release(kind, table.blocks.back());
  table.blocks.back() = copy;
  table.data.back() = pool_->data(kind, copy);
  return true;
}

KvCount KvCache::BlocksWanted(int tokens) const {
  KvCount wanted;
  if (tokens == 0) return wanted;
  for (const KvKind kind : pool_->kinds())
    wanted[kind] = BlocksFor(length_ + tokens) - base::IntSize(tables_[kind].blocks) +
                   (SharesLastBlock(kind) ? 1 : 0);
  wanted.states = pool_->states().layout().any() && state_ < 0 ? 1 : 0;
  return wanted;
}

int KvCache::Passed(int length) const {
  return std::max(0, length + 1 - pool_->window() - kKvSlack) / kernels::kKvBlock;
}

void KvCache::DropPassed(int free) {
  if (pool_->window() == 0) return;
  const int end = Passed(length_);
  while (dropped_ < end && pool_->free_blocks(KvKind::kWindow) < free) DropWindows(dropped_ + 1);
}

void KvCache::DropWindows(int count) {
  Table& table = tables_.window;
  for (; dropped_ < count; ++dropped_) {
    Release(KvKind::kWindow, table.blocks[dropped_]);
    table.blocks[dropped_] = kDropped;
    table.data[dropped_] = nullptr;
  }
}

void KvCache::Append(const KvBlock& block, int tokens) {
  CHECK_EQ(length_ % kernels::kKvBlock, 0);
  CHECK_LE(length_ + tokens, capacity_);
  const int index = length_ / kernels::kKvBlock;
  tables_.whole.Add(block.whole, pool_->data(KvKind::kWhole, block.whole));
  length_ += tokens;
  if (pool_->window() == 0) return;
  if (block.window >= 0)
    return tables_.window.Add(block.window, pool_->data(KvKind::kWindow, block.window));
  DropWindows(index);
  tables_.window.Add(kDropped, nullptr);
  dropped_ = index + 1;
}

void KvCache::Swap(KvCache& other) {
  CHECK(pool_ == other.pool_ && capacity_ == other.capacity_);
  std::swap(tables_, other.tables_);
  std::swap(length_, other.length_);
  std::swap(dropped_, other.dropped_);
  std::swap(state_, other.state_);
  std::swap(state_length_, other.state_length_);
  std::swap(state_lost_, other.state_lost_);
  copied_.reset();
  other.copied_.reset();
}

void KvCache::Clear() { SetLength(0); }

void KvCache::Adopt(std::span<const KvBlock> blocks, int tokens) {
  CHECK(length_ == 0 && tables_.whole.blocks.empty());
  CHECK_LE(tokens, capacity_);
  const int count = BlocksFor(tokens);
  if (pool_->window() > 0) {
    dropped_ = count;
    while (dropped_ > 0 && blocks[dropped_ - 1].window >= 0) --dropped_;
  }
  for (int i = 0; i < count; ++i) {
    for (const KvKind kind : pool_->kinds()) {
      if (kind == KvKind::kWindow && i < dropped_) {
        tables_[kind].Add(kDropped, nullptr);
        continue;
      }
      pool_->AddHolder(kind, blocks[i][kind]);
      tables_[kind].Add(blocks[i][kind], pool_->data(kind, blocks[i][kind]));
    }
  }
  length_ = tokens;
}

void KvCache::Share(const KvCache& other, int tokens) {
  CHECK(length_ == 0 && tables_.whole.blocks.empty());
  CHECK(tokens <= other.length_ && tokens <= capacity_);
  CHECK(!pool_->states().layout().any());  // a recurrent state belongs to one length only
  CHECK(pool_->block_bytes() == other.pool_->block_bytes() &&
        pool_->window() == other.pool_->window());
  for (const KvKind kind : pool_->kinds()) {
    const Table& from = other.tables_[kind];
    for (int i = 0; i < BlocksFor(tokens); ++i) {
      const bool ours = pool_ == other.pool_ || from.blocks[i] == kDropped;
      const int block = ours ? from.blocks[i] : kLent;
      if (block >= 0) pool_->AddHolder(kind, block);
      tables_[kind].Add(block, from.data[i]);
    }
  }
  length_ = tokens;
  dropped_ = std::min(other.dropped_, BlocksFor(tokens));
}

KvBlock KvCache::block(int index) const {
  KvBlock out;
  for (const KvKind kind : pool_->kinds()) out[kind] = std::max(-1, tables_[kind].blocks[index]);
  return out;
}

KvCount KvCache::held() const {
  return {base::IntSize(tables_.whole.blocks), base::IntSize(tables_.window.blocks) - dropped_,
          state_ >= 0 ? 1 : 0};
}

}  // namespace thermocline::nn
