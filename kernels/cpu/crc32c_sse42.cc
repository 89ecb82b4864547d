// CRC32C for x86-64 with SSE4.2.
#include <immintrin.h>

#include <cstdint>

namespace thermocline::kernels {
namespace {
inline std::uint32_t Word(std::uint32_t crc, std::uint64_t word) {
  return static_cast<std::uint32_t>(_mm_crc32_u64(crc, word));
}
inline std::uint32_t Byte(std::uint32_t crc, std::uint8_t byte) { return _mm_crc32_u8(crc, byte); }
}  // namespace
}  // namespace thermocline::kernels
//
#include "kernels/cpu/crc32c.inl.h"

namespace thermocline::kernels {

std::uint32_t Crc32cSse42(const void* data, std::size_t bytes, std::uint32_t crc) {
  return Chains(data, bytes, crc);
}

}  // namespace thermocline::kernels
