// Remembers the tokens of answers, so that a conversation goes on behind the tokens that the model
// sampled. A client that sends an answer back cannot always give the same tokens again: it may drop
// the reasoning or write arguments of calls in another spelling, and the template may, too. Then
// everything behind that answer would have to be computed anew.
// Source: the memory of sampled text in antirez/ds4.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "engine/base/mutex.h"
#include "engine/base/sha256.h"
#include "server/chat/answer_keys.h"

namespace thermocline::chat {

// A key is the name of an answer, and names its owner (answer_keys.h). Thread-safe.
class TokenMemory {
 public:
  using Tokens = std::shared_ptr<const std::vector<int>>;
  static constexpr std::size_t kBytesMax = 8 << 20;  // about two million tokens

  explicit TokenMemory(std::size_t bytes_max = kBytesMax) : bytes_max_(bytes_max) {}

  // If there are more bytes than fit, forgets the answers used longest ago of the owner that has
  // the most bytes, so that no owner makes another one's forgotten while it has more itself. Does
  // nothing with an answer that takes more than a quarter of the memory.
  void Remember(const base::Digest256& key, std::vector<int> tokens);
  // Null if the answer is not known.
  Tokens Find(const base::Digest256& key);
  std::size_t bytes() const;
  // All answers, the one used longest ago first.
  std::vector<std::pair<base::Digest256, Tokens>> Answers() const;

 private:
  struct Entry {
    base::Digest256 key;
    Tokens tokens;
    std::uint64_t turn;  // larger: used later
  };
  using OwnerName = std::array<std::byte, kOwnerBytes>;
  struct Owner {
    std::list<Entry> by_use;  // the last used one first
    std::size_t bytes = 0;
  };
  static std::size_t BytesOf(const std::vector<int>& tokens);
  static OwnerName OwnerOf(const base::Digest256& key);
  void Forget(const base::Digest256& key) REQUIRES(mutex_);

  const std::size_t bytes_max_;
  mutable base::Mutex mutex_;
  std::map<OwnerName, Owner> owners_ GUARDED_BY(mutex_);  // those with answers
  std::map<base::Digest256, std::list<Entry>::iterator> by_key_ GUARDED_BY(mutex_);
  std::size_t bytes_ GUARDED_BY(mutex_) = 0;
  std::uint64_t turn_ GUARDED_BY(mutex_) = 0;
};

}  // namespace thermocline::chat
