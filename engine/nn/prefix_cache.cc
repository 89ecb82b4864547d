#include "engine/nn/prefix_cache.h"

#include <algorithm>

namespace thermocline::nn {
namespace {

constexpr std::size_t kBlock = kernels::kKvBlock;
constexpr std::size_t kEvictedMax = 1 << 12;  // paths remembered to tell why a lookup missed

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

PrefixCache::PrefixCache(KvPool& pool, int blocks_max) : pool_(pool), blocks_max_(blocks_max) {}

PrefixCache::~PrefixCache() { Clear(); }

void PrefixCache::Clear() {
  std::vector<Node*> open = {&root_};
  while (!open.empty()) {
    Node* node = open.back();
    open.pop_back();
    if (node->block >= 0) pool_.Release(node->block);
    for (const auto& child : node->children) open.push_back(child.get());
  }
  root_.children.clear();
  counters_.blocks = 0;
}

PrefixCache::Match PrefixCache::BestChild(const Node& node, std::span<const int> tokens) {
  Match best;
  for (const auto& child : node.children) {
    const std::size_t common = CommonPrefix(child->tokens, tokens);
    if (common > best.tokens) best = {child.get(), common};
  }
  return best;
}

int PrefixCache::Find(std::span<const int> tokens, KvCache& cache) {
  if (blocks_max_ == 0 || tokens.size() < 2) return 0;
  const auto usable = tokens.first(tokens.size() - 1);
  std::vector<int> blocks;
  std::size_t found = 0;
  Node* node = &root_;
  ++clock_;
  while (found < usable.size()) {
    const Match match = BestChild(*node, usable.subspan(found));
    if (match.node == nullptr) break;
    match.node->used = clock_;
    blocks.push_back(match.node->block);
    found += match.tokens;
    if (match.tokens < kBlock) break;
    node = match.node;
  }
  Count(usable, found, node->path_hash);
  cache.Adopt(blocks, static_cast<int>(found));
  return static_cast<int>(found);
}

// `path_hash` is that of the whole blocks found.
void PrefixCache::Count(std::span<const int> tokens, std::size_t found, std::uint64_t path_hash) {
  const std::size_t missing = tokens.size() - found;
  auto& result = missing == 0 ? counters_.hits : found > 0 ? counters_.partial : counters_.misses;
  ++result;
  counters_.hit_tokens += found;
  std::size_t evicted = 0;
  for (std::size_t at = found / kBlock * kBlock; at + kBlock <= tokens.size(); at += kBlock) {
    path_hash = HashTokens(path_hash, tokens.subspan(at, kBlock));
    if (!evicted_.contains(path_hash)) break;
    evicted = at + kBlock - found;
  }
  counters_.evicted_tokens += evicted;
  counters_.new_tokens += missing - evicted;
}

void PrefixCache::Keep(std::span<const int> tokens, const KvCache& cache) {
  if (blocks_max_ == 0) return;
  CHECK_LE(tokens.size(), static_cast<std::size_t>(cache.length()));
  ++clock_;
  Node* node = &root_;
  for (std::size_t at = 0; at < tokens.size(); at += kBlock) {
    const auto piece = tokens.subspan(at, std::min(kBlock, tokens.size() - at));
    const int block = cache.blocks()[at / kBlock];
    const Match match = BestChild(*node, piece);
    if (match.node != nullptr && match.tokens == match.node->tokens.size() &&
        match.tokens < piece.size() && match.node->children.empty()) {
      Extend(*match.node, piece, block);
      node = match.node;
    } else if (match.node != nullptr && match.tokens == piece.size()) {
      node = match.node;  // kept already
    } else {
      node = Add(node, piece, block);
      if (node == nullptr) return;
    }
    node->used = clock_;
  }
}

PrefixCache::Node* PrefixCache::Add(Node* parent, std::span<const int> tokens, int block) {
  parent->used = clock_;  // its path is in use: no eviction takes it
  while (counters_.blocks >= blocks_max_) {
    if (!EvictOne()) return nullptr;
  }
  pool_.AddHolder(block);
  ++counters_.blocks;
  auto node = std::make_unique<Node>();
  node->tokens.assign(tokens.begin(), tokens.end());
  node->block = block;
  node->parent = parent;
  node->path_hash = HashTokens(parent->path_hash, tokens);
  parent->children.push_back(std::move(node));
  return parent->children.back().get();
}

// A longer sequence makes a shorter end superfluous.
void PrefixCache::Extend(Node& node, std::span<const int> tokens, int block) {
  if (node.block != block) {
    pool_.AddHolder(block);
    pool_.Release(node.block);
    node.block = block;
  }
  node.tokens.assign(tokens.begin(), tokens.end());
  node.path_hash = HashTokens(node.parent->path_hash, tokens);
}

// Gives up the least recently used leaf that is not in use now.
bool PrefixCache::EvictOne() {
  Node* oldest = nullptr;
  std::vector<Node*> open = {&root_};
  while (!open.empty()) {
    Node* node = open.back();
    open.pop_back();
    for (const auto& child : node->children) open.push_back(child.get());
    const bool leaf = node != &root_ && node->children.empty() && node->used != clock_;
    if (leaf && (oldest == nullptr || node->used < oldest->used)) oldest = node;
  }
  if (oldest == nullptr) return false;
  Remember(oldest->path_hash);
  pool_.Release(oldest->block);
  --counters_.blocks;
  ++counters_.evictions;
  std::erase_if(oldest->parent->children, [&](const auto& child) { return child.get() == oldest; });
  return true;
}

bool PrefixCache::MakeRoom(int blocks) {
  if (pool_.free_blocks() >= blocks) return true;
  ++clock_;  // also what was just looked up may go
  while (pool_.free_blocks() < blocks) {
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
