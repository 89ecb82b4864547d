#include "engine/nn/prefix_cache.h"

#include <algorithm>
#include <utility>

namespace thermocline::nn {
namespace {

constexpr std::size_t kBlock = kernels::kKvBlock;
constexpr std::size_t kEvictedMax = 1 << 12;  // paths remembered to explain why a lookup missed

std::uint64_t HashTokens(std::uint64_t hash, std::span<const int> tokens) {
  for (const int token : tokens) hash = (hash ^ token) * 0x100000001B3U + 0x9E3779B97F4A7C15U;
  return hash;
}

std::size_t CommonPrefix(std::span<const int> a, std::span<const int> b) {
  const std::size_t n = std::min(a.size(), b.size());
  std::size_t i = 0;
  while (i < n && a[i] == b[i]) ++i;
  return i;
}

}  // namespace

PrefixCache::PrefixCache(KvPool& pool, const KvCount& blocks_max, Now now)
    : pool_(pool), blocks_max_(blocks_max), now_(std::move(now)) {}

PrefixCache::~PrefixCache() { Clear(); }

// Visits all nodes from the roots on; `visit` may change a node's block, but not the tree.
template <typename Visit>
void PrefixCache::ForEachNode(const Visit& visit) {
  std::vector<Node*> open;
  for (auto& [owner, tree] : trees_) open.push_back(&tree.root);
  while (!open.empty()) {
    Node* node = open.back();
    open.pop_back();
    if (node->parent != nullptr) visit(*node);
    for (const auto& child : node->children) open.push_back(child.get());
  }
}

void PrefixCache::Clear() {
  ForEachNode([this](Node& node) {
    DropWindow(node);
    DropSnapshots(node);
    pool_.Release(KvKind::kWhole, node.block.whole);
  });
  windows_.clear();
  trees_.clear();
  counters_.blocks = 0;
}

PrefixCache::Tree& PrefixCache::TreeOf(std::string_view owner) {
  std::erase_if(trees_, [](const auto& entry) { return entry.second.root.children.empty(); });
  Tree& tree = trees_[std::string(owner)];
  if (tree.root.tree == nullptr) {
    tree.root.tree = &tree;
    tree.root.path_hash = std::hash<std::string_view>{}(owner);
  }
  tree.used = now_();
  return tree;
}

int PrefixCache::Share() const {
  const auto since = now_() - kIdle;
  const auto active = std::count_if(trees_.begin(), trees_.end(), [since](const auto& entry) {
    return entry.second.used >= since;
  });
  return blocks_max_.whole / static_cast<int>(std::max<std::ptrdiff_t>(1, active));
}

PrefixCache::Match PrefixCache::BestChild(const Node& node, std::span<const int> tokens) {
  Match best;
  for (const auto& child : node.children) {
    const std::size_t common = CommonPrefix(child->tokens, tokens);
    if (common > best.tokens) best = {child.get(), common};
  }
  return best;
}

int PrefixCache::RestorePrefix(std::string_view owner, std::span<const int> tokens,
                               KvCache& cache) {
  shared_ = 0;
  differs_at_ = -1;
  stored_instead_.clear();
  if (blocks_max_.whole == 0 || tokens.size() < 2) return 0;
  const auto usable = tokens.first(tokens.size() - 1);
  std::vector<KvBlock> blocks;
  std::size_t kept = 0;
  Node* node = &TreeOf(owner).root;
  const bool recurrent = pool_.states().layout().any();
  Resumption resumption;
  ++clock_;
  while (kept < usable.size()) {
    if (recurrent) FindSnapshot(*node, usable.subspan(kept), kept, resumption);
    const Match match = BestChild(*node, usable.subspan(kept));
    const bool others =
        match.node == nullptr ? !node->children.empty() : match.tokens < match.node->tokens.size();
    if (others && kept + match.tokens > 0 && kept + match.tokens < usable.size())
      SetDifference(kept + match.tokens, *node, match);
    if (match.node == nullptr) break;
    Use(*match.node);
    blocks.push_back(match.node->block);
    kept += match.tokens;
    if (match.tokens < kBlock) break;
    node = match.node;
  }
  shared_ = static_cast<int>(kept);
  std::size_t found = recurrent ? resumption.tokens : Continuable(blocks, kept);
  if (recurrent && found > 0 && !Resume(resumption, blocks, cache)) found = 0;
  Count(usable, kept, found, node->path_hash);
  if (!recurrent) cache.Adopt(blocks, static_cast<int>(found));
  return static_cast<int>(found);
}

void PrefixCache::SetDifference(std::size_t at, const Node& node, const Match& match) {
  differs_at_ = static_cast<int>(at);
  const auto latest = [](const Node& parent) {
    const auto& all = parent.children;
    const auto found = std::max_element(
        all.begin(), all.end(), [](const auto& a, const auto& b) { return a->used < b->used; });
    return found == all.end() ? nullptr : found->get();
  };
  std::size_t skipped = match.tokens;
  for (const Node* at_node = match.node != nullptr ? match.node : latest(node);
       at_node != nullptr && stored_instead_.size() < kSeenTokens; at_node = latest(*at_node)) {
    const auto rest = std::span(at_node->tokens).subspan(skipped);
    const auto more = rest.first(std::min(rest.size(), kSeenTokens - stored_instead_.size()));
    stored_instead_.insert(stored_instead_.end(), more.begin(), more.end());
    skipped = 0;
  }
}

std::size_t PrefixCache::Continuable(std::span<const KvBlock> blocks, std::size_t tokens) const {
  const std::size_t window = pool_.window();
  if (window == 0) return tokens;
  for (std::size_t count = blocks.size(); count > 0; --count) {
    const std::size_t end = std::min(tokens, count * kBlock);
    const std::size_t begin = end + 1 > window ? (end + 1 - window) / kBlock : 0;
    const bool whole = std::all_of(blocks.begin() + begin, blocks.begin() + count,
                                   [](const KvBlock& block) { return block.window >= 0; });
    if (whole) return end;
  }
  return 0;
}

// Counts a lookup. Of the first `kept` tokens, some windows may be gone: only `found` are usable.
// `path_hash` is that of the kept whole blocks.
void PrefixCache::Count(std::span<const int> tokens, std::size_t kept, std::size_t found,
                        std::uint64_t path_hash) {
  const std::size_t missing = tokens.size() - found;
  auto& result = missing == 0 ? counters_.hits : found > 0 ? counters_.partial : counters_.misses;
  ++result;
  counters_.hit_tokens += found;
  std::size_t evicted = kept - found;
  for (std::size_t at = kept / kBlock * kBlock; at + kBlock <= tokens.size(); at += kBlock) {
    path_hash = HashTokens(path_hash, tokens.subspan(at, kBlock));
    if (!evicted_.contains(path_hash)) break;
    evicted = at + kBlock - found;
  }
  counters_.evicted_tokens += evicted;
  counters_.new_tokens += missing - evicted;
}

void PrefixCache::Keep(std::string_view owner, std::span<const int> tokens, const KvCache& cache) {
  if (blocks_max_.whole == 0) return;
  CHECK_LE(tokens.size(), static_cast<std::size_t>(cache.length()));
  ++clock_;
  Node* node = &TreeOf(owner).root;
  const std::size_t state_end = cache.has_state() ? cache.state_length() : 0;
  for (std::size_t at = 0; at < tokens.size(); at += kBlock) {
    const auto piece = tokens.subspan(at, std::min(kBlock, tokens.size() - at));
    const KvBlock block = cache.block(static_cast<int>(at / kBlock));
    const Match match = BestChild(*node, piece);
    if (match.node != nullptr && match.tokens == match.node->tokens.size() &&
        match.tokens < piece.size() && match.node->children.empty()) {
      Extend(*match.node, piece, block);
      node = match.node;
    } else if (match.node != nullptr && match.tokens == piece.size()) {
      node = match.node;  // already stored
    } else {
      node = Add(node, piece, block);
      if (node == nullptr) return;
    }
    Use(*node);
    if (node->tokens.size() == piece.size()) KeepWindow(*node, block.window);
    if (state_end > at && state_end <= at + piece.size())
      KeepSnapshot(*node, static_cast<int>(state_end - at), cache);
  }
}

void PrefixCache::FindSnapshot(Node& node, std::span<const int> tokens, std::size_t at,
                               Resumption& best) {
  for (const auto& child : node.children) {
    const std::size_t common = CommonPrefix(child->tokens, tokens);
    for (Node::Snapshot& snapshot : child->snapshots) {
      const std::size_t behind = snapshot.tokens;
      if (behind <= common && at + behind > best.tokens)
        best = {child.get(), &snapshot, at + behind};
    }
  }
}

bool PrefixCache::Resume(const Resumption& from, std::span<const KvBlock> path, KvCache& cache) {
  Use(*from.node);
  from.snapshot->used = clock_;
  if (pool_.states().free_states() == 0 && !EvictSnapshot()) return false;
  std::vector<KvBlock> blocks(path.begin(), path.begin() + from.node->depth - 1);
  blocks.push_back(from.node->block);
  cache.Adopt(blocks, static_cast<int>(from.tokens));
  return cache.AdoptState(pool_.states().data(from.snapshot->state), static_cast<int>(from.tokens));
}

void PrefixCache::KeepSnapshot(Node& node, int tokens, const KvCache& cache) {
  for (Node::Snapshot& snapshot : node.snapshots) {
    if (snapshot.tokens != tokens) continue;
    snapshot.used = clock_;
    return;
  }
  while (counters_.states >= blocks_max_.states || pool_.states().free_states() == 0) {
    if (!EvictSnapshot()) return;
  }
  const int state = pool_.states().Take();
  const std::span<const float> from = cache.state();
  std::copy(from.begin(), from.end(), pool_.states().data(state).begin());
  node.snapshots.push_back({tokens, state, clock_});
  with_states_.insert(&node);
  ++counters_.states;
}

void PrefixCache::DropSnapshots(Node& node) {
  for (const Node::Snapshot& snapshot : node.snapshots) pool_.states().Release(snapshot.state);
  counters_.states -= node.snapshots.size();
  node.snapshots.clear();
  with_states_.erase(&node);
}

bool PrefixCache::EvictSnapshot() {
  Node* holder = nullptr;
  std::size_t oldest = 0;
  for (Node* node : with_states_) {
    for (std::size_t i = 0; i < node->snapshots.size(); ++i) {
      if (node->snapshots[i].used == clock_) continue;
      if (holder != nullptr && node->snapshots[i].used >= holder->snapshots[oldest].used) continue;
      holder = node;
      oldest = i;
    }
  }
  if (holder == nullptr) return false;
  pool_.states().Release(holder->snapshots[oldest].state);
  holder->snapshots.erase(holder->snapshots.begin() + oldest);
  if (holder->snapshots.empty()) with_states_.erase(holder);
  --counters_.states;
  return true;
}

void PrefixCache::List(Node& node) {
  if (node.parent == nullptr) return;
  if (node.children.empty()) node.tree->leaves.insert(&node);
  if (node.block.window >= 0) windows_.insert(&node);
}

void PrefixCache::Unlist(Node& node) {
  if (node.parent == nullptr) return;
  node.tree->leaves.erase(&node);
  windows_.erase(&node);
}

void PrefixCache::Use(Node& node) {
  if (node.used == clock_) return;
  Unlist(node);
  node.used = clock_;
  List(node);
}

PrefixCache::Node* PrefixCache::Add(Node* parent, std::span<const int> tokens,
                                    const KvBlock& block) {
  Use(*parent);  // its path is in use, which protects it from eviction
  while (counters_.blocks >= blocks_max_.whole) {
    if (!EvictOne()) return nullptr;
  }
  pool_.AddHolder(KvKind::kWhole, block.whole);
  ++counters_.blocks;
  ++parent->tree->blocks;
  auto node = std::make_unique<Node>();
  node->tokens.assign(tokens.begin(), tokens.end());
  node->block.whole = block.whole;
  node->parent = parent;
  node->tree = parent->tree;
  node->depth = parent->depth + 1;
  node->path_hash = HashTokens(parent->path_hash, tokens);
  Unlist(*parent);
  parent->children.push_back(std::move(node));
  List(*parent);
  List(*parent->children.back());
  return parent->children.back().get();
}

// Replaces a node's tokens by a longer sequence that begins with them.
void PrefixCache::Extend(Node& node, std::span<const int> tokens, const KvBlock& block) {
  if (node.block.whole != block.whole) {
    pool_.AddHolder(KvKind::kWhole, block.whole);
    pool_.Release(KvKind::kWhole, node.block.whole);
    node.block.whole = block.whole;
  }
  DropWindow(node);  // it lacks the further tokens
  node.tokens.assign(tokens.begin(), tokens.end());
  node.path_hash = HashTokens(node.parent->path_hash, tokens);
}

// Stores the window `block`, -1 = none, if the node has lost its own. Windows at the beginning of
// the path are evicted to make room.
void PrefixCache::KeepWindow(Node& node, int block) {
  if (block < 0 || node.block.window >= 0) return;
  while (counters_.window_blocks >= blocks_max_.window) {
    if (!EvictWindow()) return;
  }
  pool_.AddHolder(KvKind::kWindow, block);
  node.block.window = block;
  List(node);
  ++counters_.window_blocks;
}

void PrefixCache::DropWindow(Node& node) {
  if (node.block.window < 0) return;
  windows_.erase(&node);
  pool_.Release(KvKind::kWindow, node.block.window);
  node.block.window = -1;
  --counters_.window_blocks;
}

// Evicts a block of layers with a window: of the least recently used nodes the first in its path,
// since sequences are continued at their ends.
bool PrefixCache::EvictWindow() {
  if (windows_.empty()) return false;
  DropWindow(**windows_.begin());
  return true;
}

// Evicts the least recently used leaf that is not in use, preferably of an owner with more than its
// share.
bool PrefixCache::EvictOne() {
  Node* oldest = nullptr;
  const int share = Share();
  const auto goes_first = [share](const Node& a, const Node& b) {
    const bool a_over = a.tree->blocks > share, b_over = b.tree->blocks > share;
    return a_over != b_over ? a_over : a.used < b.used;
  };
  for (auto& [owner, tree] : trees_) {
    if (tree.leaves.empty()) continue;
    Node* const first = *tree.leaves.begin();
    if (first->used != clock_ && (oldest == nullptr || goes_first(*first, *oldest))) oldest = first;
  }
  if (oldest == nullptr) return false;
  Remember(oldest->path_hash);
  DropWindow(*oldest);
  DropSnapshots(*oldest);
  pool_.Release(KvKind::kWhole, oldest->block.whole);
  --counters_.blocks;
  --oldest->tree->blocks;
  ++counters_.evictions;
  Unlist(*oldest);
  Node& parent = *oldest->parent;
  std::erase_if(parent.children, [&](const auto& child) { return child.get() == oldest; });
  List(parent);
  return true;
}

bool PrefixCache::MakeRoom(const KvCount& blocks) {
  if (pool_.HasFree(blocks)) return true;
  ++clock_;  // allows eviction of the nodes of the last lookup, too
  while (pool_.states().free_states() < blocks.states) {
    if (!EvictSnapshot()) return false;
  }
  while (pool_.free_blocks(KvKind::kWindow) < blocks.window) {
    if (!EvictWindow()) return false;
  }
  while (pool_.free_blocks() < blocks.whole) {
    if (!EvictOne()) return false;
  }
  return true;
}

void PrefixCache::Remember(std::uint64_t path_hash) {
  if (evicted_order_.size() < kEvictedMax) {
    evicted_order_.push_back(path_hash);
  } else {
    evicted_.erase(evicted_order_[evicted_next_]);
    evicted_order_[evicted_next_] = path_hash;
    evicted_next_ = (evicted_next_ + 1) % kEvictedMax;
  }
  evicted_.insert(path_hash);
}

}  // namespace thermocline::nn
