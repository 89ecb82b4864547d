// The tile kernels on tiles that are arrays, so that machines without AMX check everything but the
// four instructions themselves. Source: the pseudocode of TDPBSSD and
// TDPBUSD in Intel's manual.
#include "kernels/cpu/x86_features.h"
//
#include "kernels/cpu/simd_avx512.h"
//
#include "kernels/cpu/ops.inl.h"
//
#include "kernels/cpu/gemm_amx.inl.h"
//
#include "kernels/cpu/attention_amx.inl.h"
#include "tests/kernels/tables.h"

namespace thermocline::kernels {
namespace {

struct EmulatedTiles {
  static inline thread_local int tokens = 0;
  static void Configure(int count) { tokens = count; }
  static void Release() { tokens = 0; }

  template <int kTile>
  static void Multiply(const std::int8_t* q, int stride, const std::uint8_t* levels,
                       std::int32_t* dots) {
    static_assert(kTile < 4);
    for (int m = 0; m < tokens; ++m) {
      for (int n = 0; n < 16; ++n) {
        std::int32_t sum = 0;
        for (int k = 0; k < 32; ++k)
          sum += q[m * stride + k] *
                 static_cast<std::int8_t>(levels[k / 4 * kQuadBytes + n * 4 + k % 4]);
        dots[m * 16 + n] = sum;
      }
    }
  }

  static inline thread_local const std::uint8_t* levels = nullptr;
  static void LoadLevels(const std::uint8_t* of) { levels = of; }
  template <int kTile>
  static void MultiplyLevels(const std::uint8_t* values, std::int32_t* dots) {
    static_assert(kTile < 4);
    for (int m = 0; m < 16; ++m) {
      for (int n = 0; n < 16; ++n) {
        std::int32_t sum = 0;
        for (int k = 0; k < kKvBlock; ++k)
          sum += levels[m * kKvBlock + k] *
                 static_cast<std::int8_t>(values[k / 4 * kQuadBytes + n * 4 + k % 4]);
        dots[m * 16 + n] = sum;
      }
    }
  }
};

}  // namespace

const OpTable* AmxEmulated() {
  static const OpTable table = [] {
    OpTable all = kIsaOps;
    all.name = "amx emulated";
    all.gemm = GemmWithTiles<EmulatedTiles>;
    all.gemm_rows = GemmRows<GemmWithTiles<EmulatedTiles>>;
    all.attention = AttentionWithTiles<EmulatedTiles>;
    return all;
  }();
  return HasAvx512() ? &table : nullptr;
}

}  // namespace thermocline::kernels
