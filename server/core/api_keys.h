// Keys of the daemon's users, read from a file of hashes.
//
//   # comment
//   NAME:SHA256[:admin][:priority=N][:models=NAME,NAME]
//
// NAME consists of letters, digits, '.', '_' and '-'. It appears in logs and metrics, and requests
// are scheduled fairly by it; keys of one client have different names. SHA256 is the hash of the
// key, as 64 hexadecimal digits. Keys are long and random, so a fast hash without salt protects
// them: the file does not help to guess them. `thermoclined --hash-key NAME` makes a line.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/sha256.h"
#include "engine/base/status.h"
#include "server/core/model_rights.h"

namespace thermocline::server {

// A key's owner.
struct Identity {
  std::string name;
  bool admin = false;    // may use the routes below /admin
  int priority_max = 0;  // the highest priority its requests may have
  ModelRights models = {};
};

// The KEY of an Authorization header "Bearer KEY"; nullopt for any other value. The scheme is
// case-insensitive and may be followed by several spaces. Source: RFC 9110, section 11.
std::optional<std::string_view> BearerKey(std::string_view authorization);

// Immutable.
class ApiKeys {
 public:
  static constexpr std::size_t kKeyBytesMin = 16, kKeyBytesMax = 512;

  // Without keys, clients need none.
  ApiKeys() = default;
  // Errors of reading, or InvalidArgument that names the line, or that the file has no key.
  static Result<ApiKeys> Load(const std::string& path);
  static Result<ApiKeys> Parse(std::string_view text, const std::string& path);
  // The file's line for `key`. InvalidArgument: a bad name, or a key that can be guessed.
  static Result<std::string> MakeLine(std::string_view name, std::string_view key);

  bool empty() const { return entries_.empty(); }
  // Names of the keys that `before` lacks or gives fewer rights.
  std::vector<std::string> Beyond(const ApiKeys& before) const;
  // Returns the key's owner, or nullopt for an unknown key. Takes the same time for all keys of one
  // length.
  std::optional<Identity> Check(std::string_view key) const;

 private:
  struct Entry {
    Identity identity;
    base::Digest256 digest;
  };
  static Result<Entry> ParseLine(std::string_view line);
  Status Add(std::string_view line);

  std::vector<Entry> entries_;
};

}  // namespace thermocline::server
