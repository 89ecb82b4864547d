// The KV cache of earlier requests, looked up by the longest common prefix of their tokens.
//
// A radix tree whose edges are blocks of the pool: a node holds up to 64 tokens and the block of
// their K and V; a path from the root is a sequence. A prefix that ends inside a block is shared
// too: a request that continues it copies the block first (KvCache::Reserve). The least recently
// used leaf is evicted first. Source: RadixAttention (Zheng et al. 2024), with edges cut at blocks.
//
// Each owner has a separate tree: no other owner can find its prefixes, or detect them by timing.
// Owners that hold more than an equal share of the blocks are evicted first, so that one with many
// prompts does not displace the prefixes of the others.
//
// If layers with a window are stored separately, a node may have lost their block, and a prefix can
// be continued only where the last window before it is complete: the longest such prefix is found.
// If layers are recurrent, nodes hold snapshots of their state, each after one of the node's
// tokens, and a prefix can be continued only from a snapshot: the last one in the shared part.
// Source: SGLang's tree for Mamba models, whose nodes have a state or none.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_set>
#include <vector>

#include "engine/nn/kv_cache.h"

namespace thermocline::nn {

// Any thread may read.
struct PrefixCacheCounters {
  std::atomic<std::int64_t> hits{0};     // lookups that found all usable tokens
  std::atomic<std::int64_t> partial{0};  // lookups that found a part
  std::atomic<std::int64_t> misses{0};   // lookups that found nothing
  std::atomic<std::int64_t> hit_tokens{0};
  std::atomic<std::int64_t> new_tokens{0};      // not found: never seen after this prefix
  std::atomic<std::int64_t> evicted_tokens{0};  // not found: evicted earlier
  std::atomic<std::int64_t> evictions{0};       // blocks evicted for newer ones
  std::atomic<std::int64_t> blocks{0};          // blocks kept now, of whole sequences
  std::atomic<std::int64_t> window_blocks{0};   // of layers with a window
  std::atomic<std::int64_t> states{0};          // snapshots of recurrent layers kept now
};

// Decode thread only, except the counters. Borrows the pool.
class PrefixCache {
 public:
  using Now = std::function<std::chrono::steady_clock::time_point()>;
  // An owner without requests for this long loses its reserved share.
  static constexpr std::chrono::minutes kIdle{10};

  // Keeps at most `blocks_max` blocks; with no blocks of whole sequences it stores nothing.
  PrefixCache(KvPool& pool, const KvCount& blocks_max, Now now = std::chrono::steady_clock::now);
  ~PrefixCache();
  PrefixCache(const PrefixCache&) = delete;
  PrefixCache& operator=(const PrefixCache&) = delete;

  // Restores the longest stored prefix of `tokens` of `owner` into `cache`, which is empty. The
  // last token is excluded: its logits must be computed. Returns the number of tokens found.
  int RestorePrefix(std::string_view owner, std::span<const int> tokens, KvCache& cache);
  // Tokens of the last lookup that are stored, even if no snapshot allows a sequence to continue
  // there.
  int shared() const { return shared_; }
  // The position of the last lookup's first token that differs from what follows the same tokens in
  // a stored sequence; -1: the prompt only goes on behind stored ones, or shares nothing with them.
  int differs_at() const { return differs_at_; }
  // Tokens of the stored sequence from there on, at most kSeenTokens: of the sequence that was used
  // last.
  static constexpr std::size_t kSeenTokens = 20;
  std::span<const int> stored_instead() const { return stored_instead_; }
  // Stores the K and V of `tokens` for `owner`, and a snapshot of the state if `cache` has one
  // after one of them. `cache` holds the same tokens in the same order.
  void Keep(std::string_view owner, std::span<const int> tokens, const KvCache& cache);

  // Evicts blocks, the least recently used first, until the pool has `blocks` free or nothing is
  // left. Returns true if they are free.
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
    // The state after the first `tokens` tokens of the node.
    struct Snapshot {
      int tokens, state;
      std::uint64_t used;
    };
    std::vector<Snapshot> snapshots;
  };
  // The least recently used first, of equal ones the first in its path.
  struct EvictedFirst {
    bool operator()(const Node* a, const Node* b) const {
      return std::tie(a->used, a->depth, a) < std::tie(b->used, b->depth, b);
    }
  };
  using Order = std::set<Node*, EvictedFirst>;
  // A position from which a sequence with recurrent layers can continue.
  struct Resumption {
    Node* node = nullptr;
    Node::Snapshot* snapshot = nullptr;
    std::size_t tokens = 0;  // from the root
  };
  // The tree of one owner.
  struct Tree {
    Node root;
    int blocks = 0;  // of whole sequences
    Order leaves = {};
    std::chrono::steady_clock::time_point used;
  };
  struct Match {
    Node* node = nullptr;
    std::size_t tokens = 0;
  };

  // Returns the owner's tree and marks it as used now.
  Tree& TreeOf(std::string_view owner);
  // Blocks that an owner may hold while other owners need blocks.
  int Share() const;
  // The child of `node` that has most tokens in common with `tokens`.
  static Match BestChild(const Node& node, std::span<const int> tokens);
  // Sets differs_at_ to `at` and stored_instead_ to what follows the first `tokens` tokens of a
  // child of `node`.
  void SetDifference(std::size_t at, const Node& node, const Match& match);
  // The longest prefix of a path of `blocks`, `tokens` long, from which a sequence can continue.
  std::size_t Continuable(std::span<const KvBlock> blocks, std::size_t tokens) const;
  void Count(std::span<const int> tokens, std::size_t kept, std::size_t found,
             std::uint64_t path_hash);
  // Marks a node as used now.
  void Use(Node& node);
  // Puts a node into the orders of eviction where it belongs there, and takes it out. Its time of
  // use, children and window change only while it is out.
  void List(Node& node);
  void Unlist(Node& node);
  Node* Add(Node* parent, std::span<const int> tokens, const KvBlock& block);
  void Extend(Node& node, std::span<const int> tokens, const KvBlock& block);
  void KeepWindow(Node& node, int block);
  void DropWindow(Node& node);
  // Finds the last snapshot among the children of `node`, which ends at `at`, that lies within
  // `tokens`.
  void FindSnapshot(Node& node, std::span<const int> tokens, std::size_t at, Resumption& best);
  // Copies the state and blocks of a resumption to `cache`, which is empty; false: no state is
  // free.
  bool Resume(const Resumption& from, std::span<const KvBlock> path, KvCache& cache);
  void KeepSnapshot(Node& node, int tokens, const KvCache& cache);
  void DropSnapshots(Node& node);
  // Evicts the least recently used snapshot that is not in use now.
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
  Order windows_;                                   // nodes with a window
  std::unordered_set<Node*> with_states_;           // nodes with snapshots
  std::uint64_t clock_ = 0;
  std::unordered_set<std::uint64_t> evicted_;  // path hashes, bounded
  std::vector<std::uint64_t> evicted_order_;   // a ring of the same
  std::size_t evicted_next_ = 0;
  int shared_ = 0, differs_at_ = -1;
  std::vector<int> stored_instead_;
  PrefixCacheCounters counters_;
};

}  // namespace thermocline::nn
