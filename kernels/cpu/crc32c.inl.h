// CRC32C with an instruction that takes eight bytes: three chains at a time, because it takes three
// cycles and one may start in each. Included by a file for each ISA, which defines Word and Byte
// before.
#include <array>
#include <cstring>

#include "kernels/crc32c.h"

namespace thermocline::kernels {
namespace {

constexpr std::size_t kChainBytes = 256;  // of each of the three; longer ones gain nothing

// Makes the tables that advance a register over `bytes` zeros: linear, so four tables of its bytes.
using ShiftTables = std::array<std::array<std::uint32_t, 256>, 4>;
constexpr ShiftTables MakeShift(std::size_t bytes) {
  std::array<std::uint32_t, 32> column{};  // of each bit
  for (std::size_t bit = 0; bit < 32; ++bit) {
    std::uint32_t crc = std::uint32_t{1} << bit;
    for (std::size_t i = 0; i < 8 * bytes; ++i)
      crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82F63B78U : 0U);
    column[bit] = crc;
  }
  ShiftTables tables{};
  for (std::size_t k = 0; k < 4; ++k) {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      for (std::size_t bit = 0; bit < 8; ++bit) {
        if ((byte >> bit & 1) != 0) tables[k][byte] ^= column[8 * k + bit];
      }
    }
  }
  return tables;
}
constexpr ShiftTables kShift = MakeShift(kChainBytes);

inline std::uint32_t Shift(std::uint32_t crc) {
  return kShift[0][crc & 0xFF] ^ kShift[1][crc >> 8 & 0xFF] ^ kShift[2][crc >> 16 & 0xFF] ^
         kShift[3][crc >> 24];
}

inline std::uint64_t Load(const std::uint8_t* p) {
  std::uint64_t word;
  std::memcpy(&word, p, sizeof(word));
  return word;
}

std::uint32_t Chains(const void* data, std::size_t bytes, std::uint32_t crc) {
  const auto* p = static_cast<const std::uint8_t*>(data);
  crc = ~crc;
  for (; bytes >= 3 * kChainBytes; bytes -= 3 * kChainBytes, p += 3 * kChainBytes) {
    std::uint32_t second = 0, third = 0;
    for (std::size_t i = 0; i < kChainBytes; i += 8) {
      crc = Word(crc, Load(p + i));
      second = Word(second, Load(p + kChainBytes + i));
      third = Word(third, Load(p + 2 * kChainBytes + i));
    }
    crc = Shift(Shift(crc) ^ second) ^ third;
  }
  for (; bytes >= 8; bytes -= 8, p += 8) crc = Word(crc, Load(p));
  for (; bytes > 0; --bytes, ++p) crc = Byte(crc, *p);
  return ~crc;
}

}  // namespace
}  // namespace thermocline::kernels
