#include "engine/base/hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace thermocline::base {

struct Hasher::State {
  XXH3_state_t state;
};

std::string Hash128::Hex() const {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  for (const std::uint64_t word : {high, low}) {
    for (int shift = 60; shift >= 0; shift -= 4) out.push_back(kDigits[word >> shift & 15]);
  }
  return out;
}

Hasher::Hasher() : state_(std::make_unique<State>()) { XXH3_128bits_reset(&state_->state); }

Hasher::~Hasher() = default;

void Hasher::Add(std::span<const std::byte> bytes) {
  XXH3_128bits_update(&state_->state, bytes.data(), bytes.size());
}

Hash128 Hasher::Digest() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(&state_->state);
  return {.low = hash.low64, .high = hash.high64};
}

Hash128 HashOf(std::string_view text) {
  Hasher hasher;
  hasher.Add(text);
  return hasher.Digest();
}

}  // namespace thermocline::base
