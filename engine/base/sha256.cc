#include "engine/base/sha256.h"

#include <openssl/evp.h>

#include "engine/base/status.h"

namespace thermocline::base {

struct Sha256::State {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() { EVP_MD_CTX_free(context); }
};

Sha256::Sha256() : state_(std::make_unique<State>()) {
  CHECK(state_->context != nullptr);
  CHECK_EQ(EVP_DigestInit_ex(state_->context, EVP_sha256(), nullptr), 1);
}

Sha256::~Sha256() = default;

void Sha256::Add(std::span<const std::byte> bytes) {
  CHECK_EQ(EVP_DigestUpdate(state_->context, bytes.data(), bytes.size()), 1);
}

Digest256 Sha256::Digest() const {
  State copy;
  Digest256 digest{};
  CHECK_EQ(EVP_MD_CTX_copy_ex(copy.context, state_->context), 1);
  CHECK_EQ(
      EVP_DigestFinal_ex(copy.context, reinterpret_cast<unsigned char*>(digest.data()), nullptr),
      1);
  return digest;
}

}  // namespace thermocline::base
