// Chooses the op table that suits the processor.
#include <cstring>

#if defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

#include "kernels/cpu/x86_features.h"
#include "kernels/op_table.h"

namespace thermocline::kernels {

#if defined(__x86_64__)
extern const OpTable kAvx2Ops;
extern const OpTable kAvxVnniOps;
extern const OpTable kAvx512Ops;
extern const OpTable kAmxOps;
#elif defined(__aarch64__)
extern const OpTable kNeonOps;
extern const OpTable kI8mmOps;
#endif

namespace {

OpTables FindTables() {
  OpTables found{};
  const auto add = [&](bool has, const OpTable& table) {
    if (has) found.tables[found.count++] = &table;
  };
#if defined(__x86_64__)
#if !defined(THERMOCLINE_AVX2_ONLY)
  add(HasAmx(), kAmxOps);
  add(HasAvx512(), kAvx512Ops);
  add(HasAvxVnni(), kAvxVnniOps);
#endif
  add(HasAvx2(), kAvx2Ops);
#elif defined(__aarch64__)
  const bool dot = (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
  add(dot && (getauxval(AT_HWCAP2) & HWCAP2_I8MM) != 0, kI8mmOps);
  add(dot, kNeonOps);
#endif
  add(true, ReferenceOps());
  return found;
}

}  // namespace

const OpTables& CpuTables() {
  static const OpTables tables = FindTables();
  return tables;
}

const OpTable* CpuOps(const char* forced) {
  const OpTables& tables = CpuTables();
  for (int i = 0; i < tables.count; ++i) {
    if (forced == nullptr || std::strcmp(forced, tables.tables[i]->name) == 0)
      return tables.tables[i];
  }
  return nullptr;
}

}  // namespace thermocline::kernels
