// Attention on integers (attention_bytes.inl.h) with AMX tiles: 16 rows, 16 positions or dimensions
// at a time. Sums of products are exact and floats are computed in the same order, so the bits are
// those of AVX-512.
//
// A block's keys are decoded to signed bytes once for all rows. Tiles are of 16 rows: rows behind
// the last are computed and not read. Products of a panel are made while those of the one before
// are scaled. Times are in the header of attention.inl.h.
//
// `Tiles` is the hardware, or its emulation in a test.
#include "kernels/attention.h"

namespace thermocline::kernels {
namespace {

constexpr int kTiledRowsMin = 8;  // below this, AVX-512 alone is faster
constexpr int kSumTiles = 4;      // products in flight

// Integer sums of some products [16 rows][16], as tiles are stored.
struct TiledSums {
  alignas(64) std::int32_t of[kSumTiles][kTileTokens * kPanelRows];
};

// Calls body.operator()<i>() for i below both n and kSumTiles.
template <typename Body>
inline void ForSumTiles(int n, const Body& body) {
  Unroll<0, kSumTiles>([&]<int i>() __attribute__((always_inline)) {
    if (i < n) body.template operator()<i>();
  });
}

// The two products of a block on tiles, for the blocks of one call.
template <typename Tiles>
class TileProducts {
 public:
  static constexpr int kRows = kTileTokens;

  TileProducts() { Tiles::Configure(kTileTokens); }
  ~TileProducts() { Tiles::Release(); }
  TileProducts(const TileProducts&) = delete;
  TileProducts& operator=(const TileProducts&) = delete;

  // As VectorProducts.
  void Scores(const AttentionParams& p, const std::uint8_t* block, const BlockRows& rows);
  static void AddValues(const std::uint8_t* values, const BlockWeights& block, int rows,
                        int head_dim, float* out);

 private:
  void DecodeKeys(const std::uint8_t* keys, int groups);
  void TileScores(const std::uint8_t* keys, const std::int8_t* q, const TokenRows& x, int rows,
                  float* scores);

  const std::uint8_t* decoded_ = nullptr;                    // the keys whose levels are in levels_
  alignas(64) std::uint8_t levels_[kHeadDimMax * kKvBlock];  // [panel][group][8 quads][64]
  alignas(64) std::int8_t last_q_[kTileTokens * kHeadDimMax] = {};
};

template <typename Tiles>
void TileProducts<Tiles>::DecodeKeys(const std::uint8_t* keys, int groups) {
  for (int g = 0; g < kBlockVectors * groups; ++g)
    DecodeSigned<DType::kQ8_0>(keys + StartOf(g, kKeyGroupBytes) + 2 * kPanelRows,
                               levels_ + g * 512);
}

// Adds the products of G groups from `first` on to one panel's scores of some rows.
template <int G>
inline void AddScores(const std::uint8_t* groups, int first, const TokenRows& x, int rows,
                      const TiledSums& sums, float* scores) {
  F32x16 scale[G];
  for (int g = 0; g < G; ++g) scale[g] = LoadF16(groups + g * kKeyGroupBytes);
  for (int t = 0; t < rows; ++t) {
    const float* q_scale = x.scale + t * x.blocks + first;
    float* to = scores + t * kKvBlock;
    F32x16 acc = first == 0 ? ZeroF() : LoadF32(to);
    for (int g = 0; g < G; ++g)
      acc = Fma(MulF(scale[g], Set1(q_scale[g])), ToF32(LoadI32(sums.of[g] + t * 16)), acc);
    Store(to, acc);
  }
}

// Scores of at most 16 rows. `q` [16, head_dim] can be read to its end.
template <typename Tiles>
void TileProducts<Tiles>::TileScores(const std::uint8_t* keys, const std::int8_t* q,
                                     const TokenRows& x, int rows, float* scores) {
  const int groups = static_cast<int>(x.blocks), all = kBlockVectors * groups;
  TiledSums sums[2];
  const auto left = [&](int at) { return groups - at % groups; };  // groups of the panel
  const auto multiply = [&](int at, TiledSums& to) {
    ForSumTiles(
        left(at), [&]<int i>() __attribute__((always_inline)) {
          Tiles::template Multiply<i>(q + (at % groups + i) * kActivationBlock,
                                      static_cast<int>(x.cols), levels_ + (at + i) * 512, to.of[i]);
        });
  };
  multiply(0, sums[0]);
  for (int at = 0, turn = 0; at < all; turn ^= 1) {
    const int count = left(at) < kSumTiles ? left(at) : kSumTiles, next = at + count;
    if (next < all) multiply(next, sums[turn ^ 1]);
    const std::uint8_t* from = keys + StartOf(at, kKeyGroupBytes);
    float* to = scores + at / groups * kPanelRows;
    const auto add = [&]<int G>() { AddScores<G>(from, at % groups, x, rows, sums[turn], to); };
    count == 4   ? add.template operator()<4>()
    : count == 3 ? add.template operator()<3>()
    : count == 2 ? add.template operator()<2>()
                 : add.template operator()<1>();
    at = next;
  }
}

template <typename Tiles>
void TileProducts<Tiles>::Scores(const AttentionParams& p, const std::uint8_t* block,
                                 const BlockRows& rows) {
  if (rows.begin > 0 || rows.end <= kKvBlock - kPanelRows || rows.count < kTiledRowsMin)
    return VectorProducts::Scores(p, block, rows);
  const std::uint8_t* keys = block + p.keys_offset;
  if (keys != decoded_) DecodeKeys(keys, p.head_dim / kActivationBlock);
  decoded_ = keys;
  const TokenRows x = TokenRowsAt(p.q, rows.first, 0);
  const std::int8_t* q = x.q;
  if (rows.count < kTileTokens) {
    __builtin_memcpy(last_q_, q, static_cast<std::size_t>(StartOf(rows.count, p.head_dim)));
    q = last_q_;
  }
  TileScores(keys, q, x, rows.count, p.scores + StartOf(rows.first, kKvBlock));
}

// Adds sums of N panels of dimensions to the states of some rows.
template <int N>
inline void AddSums(const TiledSums& sums, const BlockWeights& block, int rows, int head_dim,
                    float* out) {
  for (int t = 0; t < rows; ++t) {
    const F32x16 older = Set1(block.older[t]), scale = Set1(block.scale[t]);
    float* to = out + StartOf(t, head_dim);
    for (int i = 0; i < N; ++i) {
      const F32x16 part = MulF(ToF32(LoadI32(sums.of[i] + t * 16)), scale);
      Store(to + i * kPanelRows, Fma(LoadF32(to + i * kPanelRows), older, part));
    }
  }
}

template <typename Tiles>
void TileProducts<Tiles>::AddValues(const std::uint8_t* values, const BlockWeights& block, int rows,
                                    int head_dim, float* out) {
  if (rows < kTiledRowsMin) return VectorProducts::AddValues(values, block, rows, head_dim, out);
  const std::uint8_t* levels = values + 2 * kKvBlock;
  const int panels = head_dim / kPanelRows;
  TiledSums sums[2];
  const auto multiply = [&](int panel, TiledSums& to) {
    ForSumTiles(
        panels - panel, [&]<int i>() __attribute__((always_inline)) {
          Tiles::template MultiplyLevels<i>(levels + StartOf(panel + i, kPanelRows * kKvBlock),
                                            to.of[i]);
        });
  };
  Tiles::LoadLevels(block.levels[0]);
  multiply(0, sums[0]);
  for (int panel = 0, turn = 0; panel < panels; panel += kSumTiles, turn ^= 1) {
    if (panel + kSumTiles < panels) multiply(panel + kSumTiles, sums[turn ^ 1]);
    float* to = out + panel * kPanelRows;
    panels - panel >= kSumTiles ? AddSums<kSumTiles>(sums[turn], block, rows, head_dim, to)
                                : AddSums<2>(sums[turn], block, rows, head_dim, to);
  }
}

template <typename Tiles>
void AttentionWithTiles(const AttentionParams& p) {
  const bool tiled = p.type == KvType::kQ8 && p.tokens * p.group >= kTiledRowsMin;
  tiled ? AttendChunk<TileProducts<Tiles>>(p) : Attention(p);
}

}  // namespace
}  // namespace thermocline::kernels
