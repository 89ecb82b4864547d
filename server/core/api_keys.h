// Keys of the daemon's users: a file of hashes.
//
//   # comment
//   NAME:SHA256[:admin][:priority=N]
//
// NAME, of letters, digits, '.', '_' and '-', is what logs and metrics show and whose fair share of
// the time a request takes; keys of one client have different names. SHA256 is that of the key, 64
// hexadecimal digits. Keys are random and long, so that a fast hash without salt protects them:
// whoever has the file cannot guess them. `thermoclined --hash-key NAME` makes a line.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/status.h"

namespace thermocline::server {

// The owner of a key.
struct Identity {
  std::string name;
  bool admin = false;    // may use the routes below /admin
  int priority_max = 0;  // the highest priority its requests can have
};

// The key of "Bearer KEY", the value of a header Authorization; nullopt: it is no such value. The
// scheme is of either case and may have several blanks behind it. Source: RFC 9110, section 11.
std::optional<std::string_view> BearerKey(std::string_view authorization);

// Immutable.
class ApiKeys {
 public:
  static constexpr std::size_t kKeyBytesMin = 16, kKeyBytesMax = 512;

  // No keys: nobody is asked for one.
  ApiKeys() = default;
  // Errors of reading, or InvalidArgument with the line; a file without a key is one, too.
  static Result<ApiKeys> Load(const std::string& path);
  static Result<ApiKeys> Parse(std::string_view text, const std::string& path);
  // The line of the file for `key`. InvalidArgument: a bad name, or a key that can be guessed.
  static Result<std::string> MakeLine(std::string_view name, std::string_view key);

  bool empty() const { return entries_.empty(); }
  // Names of the keys that `before` lacks, or gives fewer rights.
  std::vector<std::string> Beyond(const ApiKeys& before) const;
  // Returns the key's owner; nullopt: it is no key. Takes the same time for every key of one
  // length.
  std::optional<Identity> Check(std::string_view key) const;

 private:
  using Digest = std::array<unsigned char, 32>;
  struct Entry {
    Identity identity;
    Digest digest;
  };
  static std::optional<Digest> Hash(std::string_view key);
  static Result<Entry> ParseLine(std::string_view line);
  Status Add(std::string_view line);

  std::vector<Entry> entries_;
};

}  // namespace thermocline::server
