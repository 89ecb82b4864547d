// The KV cache of one sequence: a table of blocks of a KvPool.
#pragma once

#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "engine/nn/kv_pool.h"

namespace thermocline::nn {

// Tokens that a sequence may be rolled back by although its windows have moved on.
inline constexpr int kKvSlack = 128;

// Maximum blocks of layers with a window of `tokens` that a sequence holds if it drops the blocks
// behind the window, not counting those of the tokens it is about to compute.
inline constexpr int WindowBlocks(int tokens) { return BlocksFor(tokens + kKvSlack) + 1; }

// A block of each kind; -1: none.
struct KvBlock : ByKvKind<int> {
  KvBlock() : ByKvKind<int>{-1, -1} {}
};

// Decode thread only. Takes blocks as the sequence grows; rolling back is setting the length.
// Blocks behind the window of layers with a window are released when the pool has no other.
class KvCache {
 public:
  // A sequence of at most `capacity` tokens in `pool`, which must outlive it.
  KvCache(KvPool& pool, int capacity);
  // Creates a sequence with its own pool of `capacity` tokens, which keeps all tokens in all
  // layers.
  static Result<std::unique_ptr<KvCache>> Create(const model::ModelConfig& config, int capacity,
                                                 kernels::KvType type = kernels::KvType::kF16);
  ~KvCache() { Clear(); }
  KvCache(const KvCache&) = delete;
  KvCache& operator=(const KvCache&) = delete;

  int capacity() const { return capacity_; }  // tokens
  int length() const { return length_; }      // tokens cached
  // Forgets the tokens from `length` on. After a rollback by more than kKvSlack tokens or, in
  // models with recurrent layers, to before state_length(), the sequence may be unable to continue
  // (Reserve). Requires: 0 <= length <= length().
  void SetLength(int length);
  // Makes room for `tokens` more after length(), and copies the last block if it is shared. Returns
  // false if the pool has no block left. Requires: the windows' last tokens have not been dropped.
  bool Reserve(int tokens);
  // Blocks that Reserve would take from the pool.
  KvCount BlocksWanted(int tokens) const;
  // Releases blocks of layers with a window that no later token sees, the first ones first, until
  // the pool has `free` free blocks.
  void DropPassed(int free);
  // Exchanges the tokens of two sequences in one pool, of the same capacity.
  void Swap(KvCache& other);
  // The blocks of the pool that the last Reserve had to copy, returned once, so that a device with
  // a part of each block copies it too. Whole sequences only: no device stores windows separately.
  struct BlockCopy {
    int from, to;
  };
  std::optional<BlockCopy> TakeCopy() { return std::exchange(copied_, std::nullopt); }
  // Adds `tokens` written tokens to the length. Requires: they were reserved.
  void Advance(int tokens) { length_ += tokens; }
  // Releases every block, and the state.
  void Clear();

  // Recurrent layers: the state is the one after the first state_length() tokens. The inputs of the
  // length() - state_length() later tokens are kept beside it, so that the sequence can be rolled
  // back to any of them.
  int state_length() const { return state_length_; }
  bool has_state() const { return state_ >= 0 && !state_lost_; }
  std::span<float> state() const { return pool_->states().data(state_); }
  // The inputs of the `index`-th token after the state.
  float* pending(int index) const { return pool_->states().pending(state_, index); }
  // Records that the state includes the first `length` tokens.
  void SetStateLength(int length) { state_length_ = length; }
  // Called if a step failed while it changed the state: the sequence must restart.
  void LoseState() { state_lost_ = true; }
  // Copies the state after `length` tokens; returns false if none is free. Requires: the sequence
  // has no state yet.
  bool AdoptState(std::span<const float> state, int length);
  // Overwrites the state with that after all of its tokens. Requires: the sequence has a state.
  void RestoreState(std::span<const float> state);

  // Starts an empty sequence with the first `tokens` tokens of `blocks`, which are shared.
  void Adopt(std::span<const KvBlock> blocks, int tokens);
  // Adds a block with `tokens` tokens, whose holder passes on to the sequence. A window below 0: no
  // later token sees the block in layers with a window. Requires: length() is a whole number of
  // blocks.
  void Append(const KvBlock& block, int tokens);
  // Starts an empty sequence with the first `tokens` tokens of `other`. Blocks of another pool are
  // read in place and, like shared ones, copied before they are written; `other` must keep them and
  // their contents meanwhile. Requires: pools of one shape.
  void Share(const KvCache& other, int tokens);
  // Requires: no block belongs to another pool.
  std::span<const int> blocks() const { return tables_.whole.blocks; }
  KvBlock block(int index) const;
  // The blocks of the pool that the sequence holds now.
  KvCount held() const;

  const KvPool& pool() const { return *pool_; }
  KvPool& pool() { return *pool_; }
  const std::uint8_t* const* block_data(KvKind kind = KvKind::kWhole) const {
    return tables_[kind].data.data();
  }
  std::uint8_t* block_at(int position, KvKind kind = KvKind::kWhole) {
    return pool_->data(kind, tables_[kind].blocks[position / kernels::kKvBlock]);
  }

 private:
  // Placeholders in the table for a block of another pool, and for a dropped block.
  static constexpr int kLent = -1, kDropped = -2;
  struct Table {
    std::vector<int> blocks;                // the sequence's, in order
    std::vector<const std::uint8_t*> data;  // of the same blocks
    void Add(int block, const std::uint8_t* at) {
      blocks.push_back(block);
      data.push_back(at);
    }
  };

  // Releases the first `count` blocks of layers with a window, which no later token sees.
  void DropWindows(int count);
  // Takes a zeroed state if the sequence needs one and has none.
  bool TakeState();
  bool SharesLastBlock(KvKind kind) const;
  bool CopyLastBlock(KvKind kind);
  // The number of window blocks that a sequence of `length` tokens no longer sees.
  int Passed(int length) const;
  void Release(KvKind kind, int block) {
    if (block >= 0) pool_->Release(kind, block);
  }

  std::unique_ptr<KvPool> own_pool_;
  KvPool* pool_;
  int capacity_;
  int length_ = 0;
  int dropped_ = 0;  // dropped blocks of layers with a window, from the first on
  int state_ = -1;   // index in the pool; -1: none is taken
  int state_length_ = 0;
  bool state_lost_ = false;
  ByKvKind<Table> tables_;
  std::optional<BlockCopy> copied_;
};

}  // namespace thermocline::nn
