// gemm.h for up to 8 tokens: as fast as the weights can be read.
//
// A block of threads owns one panel. Its warps take groups of 32 columns in turn and leave the
// exact products with the tokens in shared memory; other threads leave the rows' scales there. Then
// one thread for each output adds them up in column order, while the words of the next groups are
// on their way. Shared memory has two halves, so one barrier for a run of groups is enough. Bytes
// moved: the panel once. In flight for a multiprocessor with 1024 threads, one token, Q4_0: 4
// groups of 8 bytes for each thread, 32 KiB. Instructions of a warp for a group are few (plain
// addresses, nothing decoded twice): for 288 bytes of Q4_0 a multiprocessor that starts four a
// cycle can spare about 50 at 4.8 TB/s on 132 of them.
#include <type_traits>

#include "kernels/cuda/gemm_kernels.h"

namespace thermocline::kernels::THERMOCLINE_CUDA {
namespace {

// kTokens: room for tokens. kAhead: groups a warp loads at once.
template <DType kType, int kTokens, int kAhead, int kWarps>
struct Few {
  using P = PanelTraits<kType>;
  static constexpr int kParts = Dots<kType>::kParts;
  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kRun = kAhead * kWarps;  // groups
  static constexpr int kRunBytes = kRun / P::kBlockGroups * P::kBlockBytes;
  static constexpr int kStepBytes = kWarps / P::kBlockGroups * P::kBlockBytes;
  static constexpr int kNumbers = (kRun * kPanelRows + kThreads - 1) / kThreads;  // of a thread
  static constexpr int kBlocks = P::kK ? kRun / 8 : 1;
  static_assert(kWarps % 8 == 0);

  struct Half {
    float dots[kRun][kTokens][kParts][kPanelRows];
    Pair rows[kRun][kPanelRows];
    Pair blocks[kBlocks][kPanelRows];  // K types: d and dmin
  };

  // What a thread has loaded of a run.
  struct Loaded {
    GroupLevels<kType> levels[kAhead] = {};
    RowNumbers<kType> numbers[kNumbers] = {};
    unsigned d = 0, min = 0;
  };

  // `run`: the run's bytes in the panel; `left`: groups from it to the panel's end.
  static __device__ __forceinline__ void Load(const std::uint8_t* run, int left, Loaded& to) {
    const auto thread = static_cast<int>(threadIdx.x), warp = thread / 32;
    const std::uint8_t* group = run + warp / P::kBlockGroups * P::kBlockBytes + P::kHeader +
                                warp % P::kBlockGroups * P::kGroupBytes;
#pragma unroll
    for (int u = 0; u < kAhead; ++u) {
      if (u * kWarps + warp < left) to.levels[u].Load(group + u * kStepBytes, thread % 32);
    }
#pragma unroll
    for (int u = 0; u < kNumbers; ++u) {
      const int at = (u * kThreads + thread) / kPanelRows;
      if (at < kRun && at < left) {
        to.numbers[u].Load(run + at / P::kBlockGroups * P::kBlockBytes, at % P::kBlockGroups,
                           thread % kPanelRows);
      }
    }
    if constexpr (P::kK) {
      if (thread >= kBlocks * kPanelRows || thread / kPanelRows * 8 >= left) return;
      const std::uint8_t* at = run + thread / kPanelRows * P::kBlockBytes + thread % kPanelRows * 2;
      to.d = LoadHalfBits(at);
      if constexpr (P::kHasMin) to.min = LoadHalfBits(at + P::kMin);
    }
  }

  // `q`: words of the lane's token at the run's first group.
  static __device__ __forceinline__ void Multiply(const Loaded& from, const unsigned* q, int left,
                                                  Half& half) {
    const auto thread = static_cast<int>(threadIdx.x), warp = thread / 32;
    const int row = thread % 32 / 4, t = thread % 4;
    q += warp * 8 + t;
#pragma unroll
    for (int u = 0; u < kAhead; ++u) {
      const int group = u * kWarps + warp;
      if (group >= left) continue;
      Dots<kType> dots;
      dots.Multiply(from.levels[u], t, {__ldg(q + u * kWarps * 8), __ldg(q + u * kWarps * 8 + 4)});
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (i % 2 >= kTokens || 2 * t + i % 2 >= kTokens) continue;
#pragma unroll
        for (int part = 0; part < kParts; ++part)
          half.dots[group][2 * t + i % 2][part][row + i / 2 * 8] = dots.Get(part, i);
      }
    }
#pragma unroll
    for (int u = 0; u < kNumbers; ++u) {
      const int at = (u * kThreads + thread) / kPanelRows;
      if (at < kRun)
        half.rows[at][thread % kPanelRows] = from.numbers[u].Decode(at % P::kBlockGroups);
    }
    if constexpr (P::kK) {
      if (thread < kBlocks * kPanelRows) {
        half.blocks[thread / kPanelRows][thread % kPanelRows] = {FromHalfBits(from.d),
                                                                 FromHalfBits(from.min)};
      }
    }
  }

  // Adds `count` groups to one output. `scale` and `sum` are the token's, of the run's groups.
  static __device__ __forceinline__ void AddUp(const Half& half, int token, int row, int count,
                                               const float* scale, const float* sum,
                                               Chain<kType>& chain) {
#pragma unroll 8
    for (int group = 0; group < count; ++group) {
      float dots[kParts];
      for (int part = 0; part < kParts; ++part) dots[part] = half.dots[group][token][part][row];
      chain.Add(TermOf<kType>(dots, half.rows[group][row], __ldg(scale + group),
                              P::kHasMin ? __ldg(sum + group) : 0));
      if constexpr (P::kK) {
        if (group % 8 == 7) {
          const Pair block = half.blocks[group / 8][row];
          chain.EndBlock(block.first, block.second);
        }
      }
    }
  }
};

template <DType kType, int kTokens, int kAhead, int kWarps>
__global__ void __launch_bounds__(32 * kWarps, 32 / kWarps) FewTokens(GemmArgs args) {
  using F = Few<kType, kTokens, kAhead, kWarps>;
  auto* halves = ptx::DynamicShared<typename F::Half>();
  const auto thread = static_cast<int>(threadIdx.x), tokens = args.x.tokens;
  const int groups = args.x.cols / 32, token = thread / kPanelRows, row = thread % kPanelRows;
  const bool adds = token < tokens;
  const std::uint8_t* run = args.weights + blockIdx.x * args.panel_bytes;
  const unsigned* q = args.x.words(kTokens == 1 ? 0 : min(thread % 32 / 4, tokens - 1));
  const float* scale = args.x.scale + token * groups;
  const float* sum = args.x.scaled_sum + token * groups;
  Chain<kType> chain;
  typename F::Loaded loaded;
  F::Load(run, groups, loaded);
  for (int begin = 0, half = 0; begin < groups; begin += F::kRun, half ^= 1) {
    const int left = groups - begin;
    F::Multiply(loaded, q + begin * 8, left, halves[half]);
    run += F::kRunBytes;
    if (left > F::kRun) F::Load(run, left - F::kRun, loaded);
    __syncthreads();
    if (adds)
      F::AddUp(halves[half], token, row, min(left, F::kRun), scale + begin, sum + begin, chain);
  }
  if (adds) args.out.Store(token, static_cast<int>(blockIdx.x) * kPanelRows + row, chain.acc);
}

template <DType kType, int kTokens, int kAhead, int kWarps>
DeviceError Run(const GemmArgs& args, Stream stream) {
  constexpr std::size_t kShared = 2 * sizeof(typename Few<kType, kTokens, kAhead, kWarps>::Half);
  static_assert(kShared <= (48 << 10), "more must be asked for");
  return Launch(FewTokens<kType, kTokens, kAhead, kWarps>,
                static_cast<unsigned>(NumPanels(args.out.rows)), 32U * kWarps, kShared, stream,
                args);
}

}  // namespace

DeviceError GemmFew(DType type, const GemmArgs& args, Stream stream) {
  return ForQuantizedType(type, [&](auto constant) {
    constexpr DType kType = decltype(constant)::value;
    // More words than this for a warp at once do not fit the registers.
    using P = PanelTraits<kType>;
    constexpr int kAhead = kType == DType::kQ6_K ? 1 : P::kLevelWords > (P::kK ? 2 : 4) ? 2 : 4;
    if (args.x.tokens == 1) return Run<kType, 1, kAhead, 16>(args, stream);
    if (args.x.tokens == 2) return Run<kType, 2, (kAhead < 2 ? kAhead : 2), 16>(args, stream);
    if (args.x.tokens <= 4) return Run<kType, 4, 1, 16>(args, stream);
    return Run<kType, 8, 1, 8>(args, stream);
  });
}

}  // namespace thermocline::kernels::THERMOCLINE_CUDA
