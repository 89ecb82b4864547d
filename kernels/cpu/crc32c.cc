// Chooses the CRC32C that the processor has.
#include "kernels/crc32c.h"

#if defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace thermocline::kernels {

#if defined(__x86_64__)
std::uint32_t Crc32cSse42(const void* data, std::size_t bytes, std::uint32_t crc);
Crc32cFunction HardwareCrc32c() { return __builtin_cpu_supports("sse4.2") ? Crc32cSse42 : nullptr; }
#elif defined(__aarch64__)
std::uint32_t Crc32cArm(const void* data, std::size_t bytes, std::uint32_t crc);
Crc32cFunction HardwareCrc32c() {
  return (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0 ? Crc32cArm : nullptr;
}
#else
Crc32cFunction HardwareCrc32c() { return nullptr; }
#endif

std::uint32_t Crc32c(const void* data, std::size_t bytes, std::uint32_t crc) {
  static const Crc32cFunction hardware = HardwareCrc32c();
  return hardware != nullptr ? hardware(data, bytes, crc) : reference::Crc32c(data, bytes, crc);
}

}  // namespace thermocline::kernels
