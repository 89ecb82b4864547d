// The op tables this machine can run.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "tests/kernels/random_rows.h"

namespace thermocline::kernels {

#if defined(__x86_64__)
// AVX-VNNI's code with AVX-512's encoding of its instruction, and the tile code on emulated tiles,
// so that a machine with AVX-512 runs both. nullptr if the processor lacks AVX-512.
const OpTable* AvxVnniAsAvx512();
const OpTable* AmxEmulated();
#endif

inline std::vector<const OpTable*> FastTables() {
  std::vector<const OpTable*> tables(CpuTables().tables,
                                     CpuTables().tables + CpuTables().count - 1);
#if defined(__x86_64__)
  for (const OpTable* table : {AvxVnniAsAvx512(), AmxEmulated()}) {
    if (table != nullptr) tables.push_back(table);
  }
#endif
  return tables;
}

}  // namespace thermocline::kernels
