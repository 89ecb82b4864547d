// Keys and values of one sequence's tokens: a table of blocks of a KvPool.
#pragma once

#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "engine/nn/kv_pool.h"

namespace thermocline::nn {

// Decode thread only. Takes blocks as the sequence grows; rolling back is setting the length.
class KvCache {
 public:
  // A sequence of at most `capacity` tokens in `pool`, which outlives it.
  KvCache(KvPool& pool, int capacity);
  // With a pool of its own, of `capacity` tokens.
  static Result<std::unique_ptr<KvCache>> Create(const model::ModelConfig& config, int capacity,
                                                 kernels::KvType type = kernels::KvType::kF16);
  ~KvCache() { Clear(); }
  KvCache(const KvCache&) = delete;
  KvCache& operator=(const KvCache&) = delete;

  int capacity() const { return capacity_; }  // tokens
  int length() const { return length_; }      // tokens cached
  // Forgets the tokens from `length` on. Requires: 0 <= length <= length().
  void SetLength(int length);
  // Makes room for `tokens` more behind length(), and the last block its own if it is shared.
  // False if the pool has no block left.
  bool Reserve(int tokens);
  // Blocks that Reserve would take from the pool.
  int BlocksWanted(int tokens) const;
  // Exchanges the tokens of two sequences in one pool, of the same capacity.
  void Swap(KvCache& other);
  // The blocks of the pool that the last Reserve had to copy, given once: whoever holds a part of
  // each block elsewhere copies that, too.
  struct BlockCopy {
    int from, to;
  };
  std::optional<BlockCopy> TakeCopy() { return std::exchange(copied_, std::nullopt); }
  // `tokens` more are written. Requires: reserved.
  void Advance(int tokens) { length_ += tokens; }
  // Gives back every block.
  void Clear();

  // Starts an empty sequence with the first `tokens` tokens of `blocks`, shared.
  void Adopt(std::span<const int> blocks, int tokens);
  // The same with those of `other`. Blocks of another pool are read where they are and copied
  // before they are written, as shared ones; `other` keeps them, and what they hold of these
  // tokens, meanwhile. Requires: pools of one shape.
  void Share(const KvCache& other, int tokens);
  // Requires: none is another pool's.
  std::span<const int> blocks() const { return blocks_; }

  const KvPool& pool() const { return *pool_; }
  KvPool& pool() { return *pool_; }
  const std::uint8_t* const* block_data() const { return data_.data(); }
  std::uint8_t* block_at(int position) {
    return pool_->data(blocks_[position / kernels::kKvBlock]);
  }

 private:
  std::unique_ptr<KvPool> own_pool_;
  KvPool* pool_;
  int capacity_;
  int length_ = 0;
  static constexpr int kLent = -1;  // in place of a block: it is another pool's
  bool SharesLastBlock() const {
    return length_ % kernels::kKvBlock != 0 &&
           (blocks_.back() == kLent || pool_->holders(blocks_.back()) > 1);
  }
  void Release(int block) {
    if (block != kLent) pool_->Release(block);
  }
  void Add(int block, const std::uint8_t* data) {
    blocks_.push_back(block);
    data_.push_back(data);
  }

  std::vector<int> blocks_;                // the sequence's blocks, in order
  std::vector<const std::uint8_t*> data_;  // of the same
  std::optional<BlockCopy> copied_;
};

}  // namespace thermocline::nn
