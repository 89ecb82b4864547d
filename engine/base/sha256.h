// SHA-256, for names that nobody can forge or guess. Source: OpenSSL's EVP.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace thermocline::base {

using Digest256 = std::array<std::byte, 32>;

// The hash of one text.
Digest256 Sha256Of(std::string_view text);
// 64 hexadecimal digits.
std::string HexOf(const Digest256& digest);

// The hash of bytes that come in pieces. Thread-compatible. Throws std::bad_alloc where OpenSSL has
// no memory.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;

  void Add(std::span<const std::byte> bytes);
  void Add(std::string_view text) { Add(std::as_bytes(std::span(text))); }
  // Returns the hash of all bytes so far; more may follow.
  Digest256 Digest() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace thermocline::base
