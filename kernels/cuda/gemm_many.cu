// gemm.h for many tokens, on the tensor cores.
//
// A warp owns 16 rows and kTiles tiles of 8 tokens and walks along the columns: one matrix
// instruction is one group of 32 columns, so the sums of floats run in registers in column order.
// The warps of a block share tokens, whose activations they find in the cache.
#include "kernels/cuda/gemm_kernels.h"
#include "kernels/cuda/type_choice.h"

namespace thermocline::kernels::THERMOCLINE_CUDA {
namespace {

constexpr int kWarps = 4, kTiles = 2;

template <DType kType>
__device__ __forceinline__ void EndBlock(const std::uint8_t* block, int lane,
                                         Chain<kType> (&chains)[kTiles][4]) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const std::uint8_t* at = block + (lane / 4 + 8 * r) * 2;
    const float d = FromHalfBits(LoadHalfBits(at));
    float min = 0;
    if constexpr (PanelTraits<kType>::kHasMin)
      min = FromHalfBits(LoadHalfBits(at + PanelTraits<kType>::kMin));
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      chains[tile][2 * r].EndBlock(d, min);
      chains[tile][2 * r + 1].EndBlock(d, min);
    }
  }
}

template <DType kType>
__global__ void __launch_bounds__(32 * kWarps, 6) ManyTokens(GemmArgs args, int panels) {
  using P = PanelTraits<kType>;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int panel = blockIdx.x * kWarps + warp;
  const int first = blockIdx.y * kTiles * kTokenTile;
  if (panel >= panels) return;
  const std::uint8_t* block = args.weights + StartOf(panel, args.panel_bytes);
  const int last = args.x.tokens - 1, groups = args.x.cols / 32, t = lane % 4;
  Chain<kType> chains[kTiles][4];
  for (int begin = 0; begin < groups; begin += P::kBlockGroups, block += P::kBlockBytes) {
#pragma unroll 2
    for (int sub = 0; sub < P::kBlockGroups; ++sub) {
      const int group = begin + sub;
      GroupLevels<kType> levels;
      levels.Load(block + P::kHeader + sub * P::kGroupBytes, lane);
      RowNumbers<kType> numbers[2];
      numbers[0].Load(block, sub, lane / 4);
      numbers[1].Load(block, sub, lane / 4 + 8);
      const Pair rows[2] = {numbers[0].Decode(sub), numbers[1].Decode(sub)};
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        // Tokens past the last repeat it; their results are not stored.
        const int at = first + tile * kTokenTile;
        const unsigned* q = args.x.words(min(at + lane / 4, last)) + group * 8 + t;
        Dots<kType> dots;
        dots.Multiply(levels, t, {__ldg(q), __ldg(q + 4)});
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int x = min(at + 2 * t + i % 2, last) * groups + group;
          float parts[Dots<kType>::kParts];
          for (int part = 0; part < Dots<kType>::kParts; ++part) parts[part] = dots.Get(part, i);
          chains[tile][i].Add(TermOf<kType>(parts, rows[i / 2], __ldg(args.x.scale + x),
                                            P::kHasMin ? __ldg(args.x.scaled_sum + x) : 0));
        }
      }
    }
    if constexpr (P::kK) EndBlock<kType>(block, lane, chains);
  }
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int token = first + tile * kTokenTile + lane % 4 * 2 + i % 2;
      const int row = panel * kPanelRows + lane / 4 + i / 2 * 8;
      if (token < args.x.tokens) args.out.Store(token, row, chains[tile][i].acc);
    }
  }
}

}  // namespace

DeviceError GemmMany(DType type, const GemmArgs& args, Stream stream) {
  const int panels = NumPanels(args.out.rows), tokens = kTiles * kTokenTile;
  const dim3 grid((panels + kWarps - 1) / kWarps, (args.x.tokens + tokens - 1) / tokens);
  return ForQuantizedType(type, [&](auto constant) {
    return Launch(ManyTokens<decltype(constant)::value>, grid, 32 * kWarps, 0, stream, args,
                  panels);
  });
}

}  // namespace thermocline::kernels::THERMOCLINE_CUDA
