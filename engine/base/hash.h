// XXH3-128: checksums of files and fingerprints of models. Not for secrets.
//
// Source: Collet's xxHash (its header library, engine/base/hash.cc; no type of it leaves that
// file).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace thermocline::base {

struct Hash128 {
  std::uint64_t low = 0, high = 0;
  bool operator==(const Hash128&) const = default;
  std::string Hex() const;  // 32 digits, as xxhsum prints it
};

// Returns the hash of one text.
Hash128 HashOf(std::string_view text);

// The hash of bytes that come in pieces. Thread-compatible.
class Hasher {
 public:
  Hasher();
  ~Hasher();
  Hasher(const Hasher&) = delete;
  Hasher& operator=(const Hasher&) = delete;

  void Add(std::span<const std::byte> bytes);
  void Add(std::string_view text) { Add(std::as_bytes(std::span(text))); }
  // Returns the hash of all bytes so far; more may follow.
  Hash128 Digest() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace thermocline::base
