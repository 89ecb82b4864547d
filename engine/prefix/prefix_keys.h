// The names of prefixes on flash: a chain of keyed hashes, so that a name neither reveals tokens
// nor can be guessed, and no owner can find what another one stored.
//
//   root(owner)   = SHA-256(secret, fingerprint, owner)
//   key of block  = SHA-256(key before it, "k", its tokens)      up to 64 tokens
//   key of state  = SHA-256(key before it, "s", tokens since)    of recurrent layers
// The fingerprint names all that the bytes of a block depend on beside its tokens.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/status.h"
#include "engine/store/slot_file.h"

namespace thermocline::prefix {

class PrefixKeys {
 public:
  PrefixKeys(std::string secret, std::string fingerprint)
      : secret_(std::move(secret)), fingerprint_(std::move(fingerprint)) {}

  store::SlotKey Root(std::string_view owner) const;
  static store::SlotKey Block(const store::SlotKey& before, std::span<const int> tokens);
  static store::SlotKey State(const store::SlotKey& before, std::span<const int> tokens);
  // The keys of all whole blocks of `tokens`, the root's first.
  std::vector<store::SlotKey> Chain(std::string_view owner, std::span<const int> tokens) const;
  // The name of this model's files: 16 hex digits.
  std::string FileName() const;

 private:
  const std::string secret_, fingerprint_;
};

// The secret of a folder: 32 random bytes in its file "secret", which only its owner may read, and
// which is made if there is none, or one of another length. Errors as base::ErrnoStatus.
Result<std::string> FolderSecret(const std::string& folder);

}  // namespace thermocline::prefix
