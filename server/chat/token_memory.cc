#include "server/chat/token_memory.h"

#include <utility>

namespace thermocline::chat {

std::size_t TokenMemory::BytesOf(const std::vector<int>& tokens) {
  constexpr std::size_t kEntryBytes = 256;  // of a list's and a map's node, about
  return kEntryBytes + tokens.size() * sizeof(int);
}

void TokenMemory::Remember(const base::Digest256& key, std::vector<int> tokens) {
  constexpr std::size_t kPartMax = 4;
  tokens.shrink_to_fit();
  const std::size_t bytes = BytesOf(tokens);
  if (bytes > bytes_max_ / kPartMax) return;
  auto kept = std::make_shared<const std::vector<int>>(std::move(tokens));
  const base::MutexLock lock(mutex_);
  if (const auto found = by_key_.find(key); found != by_key_.end()) {
    bytes_ -= BytesOf(*found->second->tokens);
    by_use_.erase(found->second);
    by_key_.erase(found);
  }
  by_use_.push_front({.key = key, .tokens = std::move(kept)});
  by_key_[key] = by_use_.begin();
  bytes_ += bytes;
  while (bytes_ > bytes_max_) {
    bytes_ -= BytesOf(*by_use_.back().tokens);
    by_key_.erase(by_use_.back().key);
    by_use_.pop_back();
  }
}

TokenMemory::Tokens TokenMemory::Find(const base::Digest256& key) {
  const base::MutexLock lock(mutex_);
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) return nullptr;
  by_use_.splice(by_use_.begin(), by_use_, found->second);
  return by_use_.front().tokens;
}

std::vector<std::pair<base::Digest256, TokenMemory::Tokens>> TokenMemory::Answers() const {
  const base::MutexLock lock(mutex_);
  std::vector<std::pair<base::Digest256, Tokens>> out;
  for (auto entry = by_use_.rbegin(); entry != by_use_.rend(); ++entry)
    out.emplace_back(entry->key, entry->tokens);
  return out;
}

std::size_t TokenMemory::bytes() const {
  const base::MutexLock lock(mutex_);
  return bytes_;
}

}  // namespace thermocline::chat
