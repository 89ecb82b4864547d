#include "engine/base/random.h"

#include <random>
#include <string_view>

namespace thermocline::base {

std::uint64_t RandomBits64() {
  std::random_device device;
  return (static_cast<std::uint64_t>(device()) << 32) | device();
}

std::string RandomLetters(int count) {
  constexpr std::string_view kAlphabet =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
  std::random_device device;
  std::uniform_int_distribution<std::size_t> letter(0, kAlphabet.size() - 1);
  std::string out;
  for (int i = 0; i < count; ++i) out.push_back(kAlphabet[letter(device)]);
  return out;
}

}  // namespace thermocline::base
