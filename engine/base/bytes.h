// Characters and bytes as the types that their readers take.
#pragma once

#include <cstddef>
#include <cstdint>

namespace thermocline::base {

// A byte of a text: 0 to 255.
constexpr unsigned char ByteOf(char c) { return c; }
// ASCII alone, whatever the locale.
constexpr char ToLower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }

// Memory as the kernels and the formats of files take it.
inline const std::uint8_t* Octets(const std::byte* memory) {
  return reinterpret_cast<const std::uint8_t*>(memory);
}
inline std::uint8_t* Octets(std::byte* memory) { return reinterpret_cast<std::uint8_t*>(memory); }

}  // namespace thermocline::base
