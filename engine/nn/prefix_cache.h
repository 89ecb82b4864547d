// Keys and values of earlier requests, found again by the longest common prefix of their tokens.
//
// A radix tree whose edges are blocks of the pool: a node holds up to 64 tokens and the block of
// their K and V; a path from the root is a sequence. A prefix that ends inside a block is
// shared too: who continues it copies the block first (KvCache::Reserve). The least recently used
// leaf goes first. Source: RadixAttention (Zheng et al. 2024), with edges cut at blocks.
//
// Each owner has a tree of its own: what one has computed cannot be found, or seen in the time that
// it saves, by another. Owners that hold more than an equal share of the blocks give up theirs
// first, so that one who reads many prompts does not take what the others come back to.
//
// Where layers with a window are apart, a node may have lost their block, and a prefix can be
// continued only from where the last window before it is whole: the longest such one is found.
// Where layers are recurrent, nodes hold snapshots of their state, each behind one of the node's
// tokens, and a prefix can be continued only from a snapshot: the last one in what is shared.
// Source: SGLang's tree for Mamba models, whose nodes have a state or none.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "engine/nn/kv_cache.h"

namespace thermocline::nn {

// Any thread may read.
struct PrefixCacheCounters {
  std::atomic<std::int64_t> hits{0};     // lookups that found all they could use
  std::atomic<std::int64_t> partial{0};  // some of it
  std::atomic<std::int64_t> misses{0};   // nothing
  std::atomic<std::int64_t> hit_tokens{0};
  std::atomic<std::int64_t> new_tokens{0};      // not found: never seen behind this prefix
  std::atomic<std::int64_t> evicted_tokens{0};  // not found: were kept once
  std::atomic<std::int64_t> evictions{0};       // blocks given up for newer ones
  std::atomic<std::int64_t> blocks{0};          // blocks kept now, of whole sequences
  std::atomic<std::int64_t> window_blocks{0};   // of layers with a window
  std::atomic<std::int64_t> states{0};          // snapshots of recurrent layers kept now
};

// Decode thread only, but for the counters. Borrows the pool.
class PrefixCache {
 public:
  using Now = std::function<std::chrono::steady_clock::time_point()>;
  // An owner that has asked for nothing for so long has no share that others must leave.
  static constexpr std::chrono::minutes kIdle{10};

  // Keeps at most `blocks_max` blocks; none of whole sequences keeps nothing.
  PrefixCache(KvPool& pool, const KvCount& blocks_max, Now now = std::chrono::steady_clock::now);
  ~PrefixCache();
  PrefixCache(const PrefixCache&) = delete;
  PrefixCache& operator=(const PrefixCache&) = delete;

  // Gives `cache`, which is empty, the longest prefix of `tokens` that `owner` has kept, but not
  // the last token: its logits must be computed. Returns the number of tokens found.
  int Find(std::string_view owner, std::span<const int> tokens, KvCache& cache);
  // Tokens of the last lookup that are kept, also where no snapshot lets a sequence go on there.
  int shared() const { return shared_; }
  // Stores the K and V of `tokens` for `owner`, and a snapshot of the state if `cache` has one
  // behind one of them. `cache` holds the same tokens in the same order.
  void Keep(std::string_view owner, std::span<const int> tokens, const KvCache& cache);

  // Gives blocks up, the least recently used first, until `blocks` are free in the pool or nothing
  // is kept. Whether they are free.
  bool MakeRoom(const KvCount& blocks);
  // Forgets everything.
  void Clear();

  const PrefixCacheCounters& counters() const { return counters_; }

 private:
  struct Tree;
  struct Node {
    std::vector<int> tokens;  // 1 .. kKvBlock
    KvBlock block;
    Node* parent = nullptr;
    Tree* tree = nullptr;
    int depth = 0;
    std::uint64_t used = 0;       // clock of the last lookup or insertion
    std::uint64_t path_hash = 0;  // of the tokens from the root to the end of this node
    std::vector<std::unique_ptr<Node>> children;
    // The state behind the first `tokens` of the node's.
    struct Snapshot {
      int tokens, state;
      std::uint64_t used;
    };
    std::vector<Snapshot> snapshots;
  };
  // A place from which a sequence of recurrent layers can go on.
  struct Resumption {
    Node* node = nullptr;
    Node::Snapshot* snapshot = nullptr;
    std::size_t tokens = 0;  // from the root
  };
  // The tree of one owner.
  struct Tree {
    Node root;
    int blocks = 0;  // of whole sequences
    std::chrono::steady_clock::time_point used;
  };
  struct Match {
    Node* node = nullptr;
    std::size_t tokens = 0;
  };

  // The owner's tree, which a lookup or an insertion uses now.
  Tree& TreeOf(std::string_view owner);
  // Blocks that an owner may hold while others want them.
  int Share() const;
  // The child of `node` that shares most tokens with `tokens`.
  static Match BestChild(const Node& node, std::span<const int> tokens);
  // The tokens of a path of `blocks`, `tokens` long, behind which a sequence can go on.
  std::size_t Continuable(std::span<const KvBlock> blocks, std::size_t tokens) const;
  void Count(std::span<const int> tokens, std::size_t kept, std::size_t found,
             std::uint64_t path_hash);
  Node* Add(Node* parent, std::span<const int> tokens, const KvBlock& block);
  void Extend(Node& node, std::span<const int> tokens, const KvBlock& block);
  void KeepWindow(Node& node, int block);
  void DropWindow(Node& node);
  // The last snapshot among the children of `node`, whose end is at `at`, that `tokens` share.
  void FindSnapshot(Node& node, std::span<const int> tokens, std::size_t at, Resumption& best);
  // Gives `cache`, empty, the state and blocks of a resumption; false: no state is free.
  bool Resume(const Resumption& from, std::span<const KvBlock> path, KvCache& cache);
  void KeepSnapshot(Node& node, int tokens, const KvCache& cache);
  void DropSnapshots(Node& node);
  // Gives up the least recently used snapshot, but for those in use now.
  bool EvictSnapshot();
  template <typename Visit>
  void ForEachNode(const Visit& visit);
  bool EvictOne();
  bool EvictWindow();
  void Remember(std::uint64_t path_hash);

  KvPool& pool_;
  const KvCount blocks_max_;
  const Now now_;
  std::map<std::string, Tree, std::less<>> trees_;  // by owner
  std::uint64_t clock_ = 0;
  std::unordered_set<std::uint64_t> evicted_;  // path hashes, bounded
  std::vector<std::uint64_t> evicted_order_;   // a ring of the same
  std::size_t evicted_next_ = 0;
  int shared_ = 0;
  PrefixCacheCounters counters_;
};

}  // namespace thermocline::nn
