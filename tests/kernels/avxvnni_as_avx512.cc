// AVX-VNNI's kernels, compiled with AVX-512's encoding of the same instruction.
#include "kernels/cpu/x86_features.h"
//
#include "kernels/cpu/simd_avx2.h"
//
#include "kernels/cpu/ops.inl.h"
#include "tests/kernels/tables.h"

namespace thermocline::kernels {

const OpTable* AvxVnniAsAvx512() {
  static const OpTable table = [] {
    OpTable all = kIsaOps;
    all.name = "avxvnni as avx512";
    return all;
  }();
  return HasAvx512() ? &table : nullptr;
}

}  // namespace thermocline::kernels
