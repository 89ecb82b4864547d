// CRC32C for ARMv8 with the CRC extension.
#include <arm_acle.h>

#include <cstdint>

namespace thermocline::kernels {
namespace {
inline std::uint32_t Word(std::uint32_t crc, std::uint64_t word) { return __crc32cd(crc, word); }
inline std::uint32_t Byte(std::uint32_t crc, std::uint8_t byte) { return __crc32cb(crc, byte); }
}  // namespace
}  // namespace thermocline::kernels
//
#include "kernels/cpu/crc32c.inl.h"

namespace thermocline::kernels {

std::uint32_t Crc32cArm(const void* data, std::size_t bytes, std::uint32_t crc) {
  return Chains(data, bytes, crc);
}

}  // namespace thermocline::kernels
