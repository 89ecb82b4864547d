#include "server/chat/token_memory.h"

#include <algorithm>
#include <utility>

namespace thermocline::chat {

std::size_t TokenMemory::BytesOf(const std::vector<int>& tokens) {
  constexpr std::size_t kEntryBytes = 256;  // of a list's and a map's node, about
  return kEntryBytes + tokens.size() * sizeof(int);
}

TokenMemory::OwnerName TokenMemory::OwnerOf(const base::Digest256& key) {
  OwnerName name;
  std::copy_n(key.begin(), name.size(), name.begin());
  return name;
}

void TokenMemory::Remember(const base::Digest256& key, std::vector<int> tokens) {
  constexpr std::size_t kPartMax = 4;
  tokens.shrink_to_fit();
  const std::size_t bytes = BytesOf(tokens);
  if (bytes > bytes_max_ / kPartMax) return;
  auto kept = std::make_shared<const std::vector<int>>(std::move(tokens));
  const base::MutexLock lock(mutex_);
  Forget(key);
  Owner& owner = owners_[OwnerOf(key)];
  owner.by_use.push_front({.key = key, .tokens = std::move(kept), .turn = ++turn_});
  by_key_[key] = owner.by_use.begin();
  owner.bytes += bytes;
  bytes_ += bytes;
  while (bytes_ > bytes_max_) {
    const auto most = std::max_element(
        owners_.begin(), owners_.end(),
        [](const auto& a, const auto& b) { return a.second.bytes < b.second.bytes; });
    Forget(base::Digest256(most->second.by_use.back().key));
  }
}

void TokenMemory::Forget(const base::Digest256& key) {
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) return;
  const auto owner = owners_.find(OwnerOf(key));
  const std::size_t bytes = BytesOf(*found->second->tokens);
  bytes_ -= bytes;
  owner->second.bytes -= bytes;
  owner->second.by_use.erase(found->second);
  by_key_.erase(found);
  if (owner->second.by_use.empty()) owners_.erase(owner);
}

TokenMemory::Tokens TokenMemory::Find(const base::Digest256& key) {
  const base::MutexLock lock(mutex_);
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) return nullptr;
  std::list<Entry>& by_use = owners_[OwnerOf(key)].by_use;
  by_use.splice(by_use.begin(), by_use, found->second);
  by_use.front().turn = ++turn_;
  return by_use.front().tokens;
}

std::vector<std::pair<base::Digest256, TokenMemory::Tokens>> TokenMemory::Answers() const {
  std::vector<Entry> entries;
  {
    const base::MutexLock lock(mutex_);
    for (const auto& [name, owner] : owners_)
      entries.insert(entries.end(), owner.by_use.begin(), owner.by_use.end());
  }
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return a.turn < b.turn; });
  std::vector<std::pair<base::Digest256, Tokens>> out;
  out.reserve(entries.size());
  for (const Entry& entry : entries) out.emplace_back(entry.key, entry.tokens);
  return out;
}

std::size_t TokenMemory::bytes() const {
  const base::MutexLock lock(mutex_);
  return bytes_;
}

}  // namespace thermocline::chat
