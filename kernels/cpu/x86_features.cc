#include "kernels/cpu/x86_features.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

namespace thermocline::kernels {
namespace {

struct Registers {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
};

Registers CpuidLeaf1() {
  Registers r;
  if (__get_cpuid(1, &r.eax, &r.ebx, &r.ecx, &r.edx) == 0) return {};
  return r;
}

Registers CpuidLeaf7(unsigned subleaf) {
  Registers r;
  if (__get_cpuid_count(7, subleaf, &r.eax, &r.ebx, &r.ecx, &r.edx) == 0) return {};
  return r;
}

bool Bit(unsigned word, int bit) { return (word >> bit & 1U) != 0; }

// True if the operating system saves the tile registers. Source: XCR0 bits 17 and 18.
bool SystemSavesTiles() {
  if (!Bit(CpuidLeaf1().ecx, 27)) return false;
  std::uint32_t low = 0, high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (low >> 17 & 3U) == 3U;
}

// Requests the use of tiles, which Linux allows on request. Source:
// Documentation/arch/x86/xstate.rst.
bool RequestTiles() {
  constexpr long kArchReqXcompPerm = 0x1023, kTileData = 18;
  return ::syscall(SYS_arch_prctl, kArchReqXcompPerm, kTileData) == 0;
}

}  // namespace

bool HasAvx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         Bit(CpuidLeaf1().ecx, 29);
}

bool HasAvxVnni() { return HasAvx2() && Bit(CpuidLeaf7(1).eax, 4); }

bool HasAvx512() {
  return HasAvx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vnni");
}

bool HasVectorPopcount() { return HasAvx512() && __builtin_cpu_supports("avx512vpopcntdq"); }

bool HasAmx() {
  const unsigned edx = CpuidLeaf7(0).edx;
  static const bool has =
      HasAvx512() && Bit(edx, 24) && Bit(edx, 25) && SystemSavesTiles() && RequestTiles();
  return has;
}

}  // namespace thermocline::kernels
