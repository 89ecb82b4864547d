// The op table for AMX: AVX-512, and tiles where many tokens share the weights.
#include "kernels/cpu/sign_popcnt.h"
#include "kernels/op_table.h"
//
#include "kernels/cpu/simd_avx512.h"
//
#include "kernels/cpu/ops.inl.h"
//
#include "kernels/cpu/gemm_amx.inl.h"
//
#include "kernels/cpu/attention_amx.inl.h"

namespace thermocline::kernels {
namespace {

// Source: the layout of LDTILECFG's operand, palette 1.
struct alignas(64) TileConfig {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t rows[16] = {};
};

// The tile instructions. Not g++ 12's intrinsics: they take the tile's number as text, which a
// template parameter is not, and _tile_loadconfig claims to read 8 of the 64 bytes, so that the
// other stores are dropped at -O3.
template <int kTile>
inline void TileZero() {
  asm volatile("tilezero %%tmm%c0" : : "i"(kTile));
}
template <int kTile>
inline void TileLoad(const void* rows, std::ptrdiff_t stride) {
  asm volatile("tileloadd (%1,%2,1), %%tmm%c0" : : "i"(kTile), "r"(rows), "r"(stride) : "memory");
}
template <int kTile>
inline void TileStore(void* rows, std::ptrdiff_t stride) {
  asm volatile("tilestored %%tmm%c0, (%1,%2,1)" : : "i"(kTile), "r"(rows), "r"(stride) : "memory");
}
// Sums of products of signed bytes: kSum [m][n] += kLeft [m][4k..] * kRight [k][4n..].
template <int kSum, int kLeft, int kRight>
inline void TileDotSigned() {
  asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSum), "i"(kLeft), "i"(kRight));
}

// Sums of products of unsigned and signed bytes.
template <int kSum, int kLeft, int kRight>
inline void TileDotUnsigned() {
  asm volatile("tdpbusd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSum), "i"(kLeft), "i"(kRight));
}

// Tiles 0..3 hold sums [tokens][16 rows] i32. Tile 4 holds activations [tokens][32 columns] and 5
// weights [8 quads][64]; 6 and 7 the same of 64 columns, for attention.
struct HardwareTiles {
  static void Configure(int tokens) {
    TileConfig config;
    const auto set = [&](int tile, int rows, int row_bytes) {
      config.rows[tile] = static_cast<std::uint8_t>(rows);
      config.row_bytes[tile] = static_cast<std::uint16_t>(row_bytes);
    };
    for (int tile = 0; tile < 4; ++tile) set(tile, tokens, 64);
    set(4, tokens, 32);
    set(5, 8, 64);
    set(6, tokens, 64);
    set(7, 16, 64);
    asm volatile("ldtilecfg %0" : : "m"(config));
  }
  static void Release() { asm volatile("tilerelease"); }

  template <int kTile>
  static void Multiply(const std::int8_t* q, int stride, const std::uint8_t* levels,
                       std::int32_t* dots) {
    TileZero<kTile>();
    TileLoad<4>(q, stride);
    TileLoad<5>(levels, kQuadBytes);
    TileDotSigned<kTile, 4, 5>();
    TileStore<kTile>(dots, kQuadBytes);
  }

  // Loads the weights of 16 rows [16][64].
  static void LoadLevels(const std::uint8_t* levels) { TileLoad<6>(levels, kKvBlock); }
  // Multiplies them by a panel of values [16 quads][64].
  template <int kTile>
  static void MultiplyLevels(const std::uint8_t* values, std::int32_t* dots) {
    TileZero<kTile>();
    TileLoad<7>(values, kQuadBytes);
    TileDotUnsigned<kTile, 6, 7>();
    TileStore<kTile>(dots, kQuadBytes);
  }
};

// dot_peak.h: products of whole tiles, four sums in flight.
std::int64_t TilePeak(int rounds) {
  TileConfig config;
  for (int tile = 0; tile < 6; ++tile) {
    config.rows[tile] = 16;
    config.row_bytes[tile] = 64;
  }
  asm volatile("ldtilecfg %0" : : "m"(config));
  alignas(64) const std::uint8_t bytes[16 * 64] = {1, 2, 3};
  TileLoad<4>(bytes, 64);
  TileLoad<5>(bytes, 64);
  TileZero<0>(), TileZero<1>(), TileZero<2>(), TileZero<3>();
  for (int i = 0; i < rounds; ++i) {
    TileDotSigned<0, 4, 5>(), TileDotSigned<1, 4, 5>();
    TileDotSigned<2, 4, 5>(), TileDotSigned<3, 4, 5>();
  }
  HardwareTiles::Release();
  return std::int64_t{rounds} * 4 * 16 * 16 * 64;
}

}  // namespace

extern const OpTable kAmxOps;
const OpTable kAmxOps = [] {
  OpTable table = kIsaOps;
  table.name = "amx";
  table.gemm = GemmWithTiles<HardwareTiles>;
  table.gemm_rows = GemmRows<GemmWithTiles<HardwareTiles>>;
  table.attention = AttentionWithTiles<HardwareTiles>;
  table.sign_scores = SignScoresPopcnt;
  table.dot_peak = TilePeak;
  return table;
}();

}  // namespace thermocline::kernels
