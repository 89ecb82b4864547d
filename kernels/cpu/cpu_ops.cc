// Chooses the op table by CPUID.
#include <cstring>

#include "kernels/op_table.h"

namespace thermocline::kernels {

#if defined(__x86_64__)
extern const OpTable kAvx2Ops;
extern const OpTable kAvx512Ops;

namespace {
bool HasAvx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("f16c");
}
bool HasAvx512() {
  return HasAvx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vnni");
}
}  // namespace

const OpTable* CpuOps(const char* forced) {
  const auto allowed = [forced](const char* name) {
    return forced == nullptr || std::strcmp(forced, name) == 0;
  };
  if (allowed("avx512") && HasAvx512()) return &kAvx512Ops;
  if (allowed("avx2") && HasAvx2()) return &kAvx2Ops;
  return allowed("reference") ? &ReferenceOps() : nullptr;
}
#else
const OpTable* CpuOps(const char* forced) {
  return forced == nullptr || std::strcmp(forced, "reference") == 0 ? &ReferenceOps() : nullptr;
}
#endif

}  // namespace thermocline::kernels
