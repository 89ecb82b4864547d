// Keys and values of one sequence's tokens: a table of blocks of a KvPool.
#pragma once

#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "engine/nn/kv_pool.h"

namespace thermocline::nn {

// Tokens that a sequence may be rolled back by, though its windows have passed what they need no
// more.
inline constexpr int kKvSlack = 128;

// Blocks that a sequence holds at most of layers with a window of `tokens`, when it gives back what
// it has passed, beside those of the tokens it is about to compute.
inline constexpr int WindowBlocks(int tokens) { return BlocksFor(tokens + kKvSlack) + 1; }

// A block of each kind; -1: none.
struct KvBlock : ByKvKind<int> {
  KvBlock() : ByKvKind<int>{-1, -1} {}
};

// Decode thread only. Takes blocks as the sequence grows; rolling back is setting the length.
// Blocks of layers with a window that the sequence has passed are given back when the pool has no
// other.
class KvCache {
 public:
  // A sequence of at most `capacity` tokens in `pool`, which outlives it.
  KvCache(KvPool& pool, int capacity);
  // With a pool of its own, of `capacity` tokens, that keeps all of them in all layers.
  static Result<std::unique_ptr<KvCache>> Create(const model::ModelConfig& config, int capacity,
                                                 kernels::KvType type = kernels::KvType::kF16);
  ~KvCache() { Clear(); }
  KvCache(const KvCache&) = delete;
  KvCache& operator=(const KvCache&) = delete;

  int capacity() const { return capacity_; }  // tokens
  int length() const { return length_; }      // tokens cached
  // Forgets the tokens from `length` on. By more than kKvSlack tokens, or, where layers are
  // recurrent, to before state_length(), the sequence may become one that cannot go on (Reserve).
  // Requires: 0 <= length <= length().
  void SetLength(int length);
  // Makes room for `tokens` more behind length(), and the last block its own if it is shared.
  // False if the pool has no block left. Requires: the windows' last tokens are still there.
  bool Reserve(int tokens);
  // Blocks that Reserve would take from the pool.
  KvCount BlocksWanted(int tokens) const;
  // Gives back blocks of layers with a window that no later token sees, the first ones first, until
  // `free` are free in the pool.
  void DropPassed(int free);
  // Exchanges the tokens of two sequences in one pool, of the same capacity.
  void Swap(KvCache& other);
  // The blocks of the pool that the last Reserve had to copy, given once: the owner of a part of
  // each block elsewhere copies that, too. Of whole sequences only: no device has windows apart.
  struct BlockCopy {
    int from, to;
  };
  std::optional<BlockCopy> TakeCopy() { return std::exchange(copied_, std::nullopt); }
  // `tokens` more are written. Requires: reserved.
  void Advance(int tokens) { length_ += tokens; }
  // Gives back every block, and the state.
  void Clear();

  // Recurrent layers: the state is that behind the first state_length() tokens, and the inputs of
  // the length() - state_length() others are kept beside it, so that the sequence may be rolled
  // back to any of them.
  int state_length() const { return state_length_; }
  bool has_state() const { return state_ >= 0 && !state_lost_; }
  std::span<float> state() const { return pool_->states().data(state_); }
  // The inputs of the `index`-th token behind the state.
  float* pending(int index) const { return pool_->states().pending(state_, index); }
  // The state has seen the first `length` tokens.
  void SetStateLength(int length) { state_length_ = length; }
  // A step failed while it changed the state: the sequence must begin anew.
  void LoseState() { state_lost_ = true; }
  // Copies the state behind `length` tokens; false if none is free. Requires: none was taken yet.
  bool AdoptState(std::span<const float> state, int length);
  // The same in place of the state it has, behind all of its tokens. Requires: it has one.
  void RestoreState(std::span<const float> state);

  // Starts an empty sequence with the first `tokens` tokens of `blocks`, shared.
  void Adopt(std::span<const KvBlock> blocks, int tokens);
  // The same with those of `other`. Blocks of another pool are read where they are and copied
  // before they are written, as shared ones; `other` keeps them, and what they hold of these
  // tokens, meanwhile. Requires: pools of one shape.
  void Share(const KvCache& other, int tokens);
  // Requires: none is another pool's.
  std::span<const int> blocks() const { return tables_.whole.blocks; }
  KvBlock block(int index) const;
  // Blocks of the pool that it has now.
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
  // In place of a block: it is another pool's, or was given back.
  static constexpr int kLent = -1, kDropped = -2;
  struct Table {
    std::vector<int> blocks;                // the sequence's, in order
    std::vector<const std::uint8_t*> data;  // of the same
    void Add(int block, const std::uint8_t* at) {
      blocks.push_back(block);
      data.push_back(at);
    }
  };

  // Takes a state, all zeros, if the sequence needs one and has none.
  bool TakeState();
  bool SharesLastBlock(KvKind kind) const;
  bool CopyLastBlock(KvKind kind);
  // Blocks of layers with a window that a sequence of `length` tokens sees no more.
  int Passed(int length) const;
  void Release(KvKind kind, int block) {
    if (block >= 0) pool_->Release(kind, block);
  }

  std::unique_ptr<KvPool> own_pool_;
  KvPool* pool_;
  int capacity_;
  int length_ = 0;
  int dropped_ = 0;  // the first blocks of layers with a window
  int state_ = -1;   // of the pool's; -1: none is taken
  int state_length_ = 0;
  bool state_lost_ = false;
  ByKvKind<Table> tables_;
  std::optional<BlockCopy> copied_;
};

}  // namespace thermocline::nn
