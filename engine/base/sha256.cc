#include "engine/base/sha256.h"

#include <openssl/evp.h>

#include <new>

#include "engine/base/status.h"

namespace thermocline::base {

struct Sha256::State {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  State() {
    if (context == nullptr) throw std::bad_alloc();
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() { EVP_MD_CTX_free(context); }
};

Digest256 Sha256Of(std::string_view text) {
  Sha256 hash;
  hash.Add(text);
  return hash.Digest();
}

std::string HexOf(const Digest256& digest) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string out;
  for (const std::byte byte : digest) {
    out += kDigits[std::to_integer<std::size_t>(byte >> 4)];
    out += kDigits[std::to_integer<std::size_t>(byte & std::byte{15})];
  }
  return out;
}

Sha256::Sha256() : state_(std::make_unique<State>()) {
  if (EVP_DigestInit_ex(state_->context, EVP_sha256(), nullptr) != 1) throw std::bad_alloc();
}

Sha256::~Sha256() = default;

void Sha256::Add(std::span<const std::byte> bytes) {
  CHECK_EQ(EVP_DigestUpdate(state_->context, bytes.data(), bytes.size()), 1);
}

Digest256 Sha256::Digest() const {
  State copy;
  Digest256 digest{};
  if (EVP_MD_CTX_copy_ex(copy.context, state_->context) != 1) throw std::bad_alloc();
  CHECK_EQ(
      EVP_DigestFinal_ex(copy.context, reinterpret_cast<unsigned char*>(digest.data()), nullptr),
      1);
  return digest;
}

}  // namespace thermocline::base
