// gemm.h for up to 8 tokens: as fast as the weights can be read.
//
// A block of threads owns one panel. Its warps take kAhead neighbouring groups of 32 columns each,
// multiply them exactly, and leave each group's term of the rows' chains of sums (Term) in shared
// memory. Then one thread for each output adds them up in column order, while the next groups are
// on their way. Shared memory has two halves, so one barrier for a run of groups is enough. A
// lane's data of a group is loaded at once, without a branch between the loads (past the panel's
// end, the last group is loaded again): weights, the tokens' levels, both scales. The thread that
// adds has one load and one instruction for a group.
//
// Bytes moved: the panel once. In flight for a multiprocessor with 1024 threads, one token, Q4_0: 4
// groups of 8 bytes for each thread, 32 KiB.
//
// H200, 4.37 TB/s read, one token, 22016 x 4096, Q4_0 and Q8_0, share of the read bandwidth:
//   tokens and scales loaded where they are used, terms made by the thread that adds  32%, 47%
//   all loads of a group at once, terms made by the lanes that multiply (this)        52%, 78%
#include <type_traits>

#include "kernels/cuda/gemm_kernels.h"
#include "kernels/cuda/type_choice.h"

namespace thermocline::kernels::THERMOCLINE_CUDA {
namespace {

// kTokens: room for tokens. kAhead: neighbouring groups a warp loads at once.
template <DType kType, int kTokens, int kAhead, int kWarps>
struct Few {
  using P = PanelTraits<kType>;
  static constexpr int kRun = kAhead * kWarps;  // groups
  // Minimum of blocks per multiprocessor, for __launch_bounds__: it leaves each thread enough
  // registers.
  static constexpr int kResident = (kTokens > 1 && kWarps == 8 ? 24 : 32) / kWarps;
  static constexpr int kBlocks = P::kK ? kRun / 8 : 1;
  static constexpr int kOwn = kTokens == 1 ? 1 : 2;  // tokens of a lane
  static constexpr int kSums = P::kHasMin ? kOwn : 1;
  static constexpr bool kShared = P::kK && !P::kIsQ6K;  // a block's groups share their scales
  static_assert(kRun % 8 == 0 && 8 % kAhead == 0);

  struct Half {
    std::conditional_t<P::kHasMin, Term, Pair> terms[kRun][kTokens][kPanelRows];
    Pair blocks[kBlocks][kPanelRows];  // K types: d and dmin
  };

  // The data that a lane loads of a run, which is kRun consecutive groups of the panel.
  struct Loaded {
    GroupLevels<kType> levels[kAhead];
    unsigned q[kAhead][2];
    RowNumbers<kType> numbers[kShared ? 1 : kAhead][2];  // scales of the lane's two rows
    float scale[kAhead][kOwn], sum[kAhead][kSums];       // of the lane's tokens
    unsigned d, min;                                     // K types: d and dmin of one row's block
  };

  // `run`: the run's bytes in the panel; `first`: its first group; `left`: groups from it to the
  // panel's end. kWhole: at least kRun, so that addresses differ by constants.
  template <bool kWhole>
  static __device__ __forceinline__ void LoadRun(const GemmArgs& args, const std::uint8_t* run,
                                                 int first, int left, Loaded& to) {
    const int thread = threadIdx.x;
    const int lane = thread % 32, row = lane / 4, t = lane % 4, groups = args.x.cols / 32;
    const int own = thread / 32 * kAhead;
    const unsigned* q = args.x.words(kTokens == 1 ? 0 : min(row, args.x.tokens - 1)) + t;
#pragma unroll
    for (int u = 0; u < kAhead; ++u) {
      const int at = kWhole ? own + u : min(own + u, left - 1), sub = at % P::kBlockGroups;
      // Groups of a warp are neighbours, and in one block if the type has blocks of several.
      const std::uint8_t* block = kWhole && P::kBlockGroups == 1
                                      ? run + own * P::kBlockBytes + u * P::kBlockBytes
                                      : run + at / P::kBlockGroups * P::kBlockBytes;
      to.levels[u].Load(block + P::kHeader + sub * P::kGroupBytes, lane);
#pragma unroll
      for (int r = 0; r < 2 && (u == 0 || !kShared); ++r)
        to.numbers[u][r].Load(block, sub, row + 8 * r);
      to.q[u][0] = __ldg(q + (first + at) * 8);
      to.q[u][1] = __ldg(q + (first + at) * 8 + 4);
#pragma unroll
      for (int i = 0; i < kOwn; ++i) {
        const int token = kTokens == 1 ? 0 : min(2 * t + i, args.x.tokens - 1);
        to.scale[u][i] = __ldg(args.x.scale + token * groups + first + at);
        if constexpr (P::kHasMin)
          to.sum[u][i] = __ldg(args.x.scaled_sum + token * groups + first + at);
      }
    }
    if constexpr (P::kK) {
      const int block = min(thread / kPanelRows, left / 8 - 1);
      const std::uint8_t* at = run + block * P::kBlockBytes + thread % kPanelRows * 2;
      to.d = LoadHalfBits(at);
      if constexpr (P::kHasMin) to.min = LoadHalfBits(at + P::kMin);
    }
  }
  static __device__ __forceinline__ void Load(const GemmArgs& args, const std::uint8_t* run,
                                              int first, int left, Loaded& to) {
    if (left >= kRun)
      LoadRun<true>(args, run, first, left, to);
    else
      LoadRun<false>(args, run, first, left, to);
  }

  static __device__ __forceinline__ void Multiply(const Loaded& from, Half& half) {
    const int thread = threadIdx.x, lane = thread % 32;
    const int row = lane / 4, t = lane % 4;
#pragma unroll
    for (int u = 0; u < kAhead; ++u) {
      const int group = thread / 32 * kAhead + u, sub = group % P::kBlockGroups;
      Dots<kType> dots;
      dots.Multiply(from.levels[u], t, from.q[u]);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (i % 2 >= kOwn || 2 * t + i % 2 >= kTokens) continue;
        float each[Dots<kType>::kParts];
#pragma unroll
        for (int part = 0; part < Dots<kType>::kParts; ++part) each[part] = dots.Get(part, i);
        const Pair numbers = from.numbers[kShared ? 0 : u][i / 2].Decode(sub);
        const Term term = TermOf<kType>(each, numbers, from.scale[u][i % kOwn],
                                        P::kHasMin ? from.sum[u][i % kSums] : 0);
        auto& to = half.terms[group][2 * t + i % 2][row + i / 2 * 8];
        if constexpr (P::kHasMin)
          to = term;
        else
          to = {term.factor, term.dot};
      }
    }
    if constexpr (P::kK) {
      if (thread < kBlocks * kPanelRows)
        half.blocks[thread / kPanelRows][thread % kPanelRows] = {
            FromHalfBits(from.d), P::kHasMin ? FromHalfBits(from.min) : 0};
    }
  }

  static __device__ __forceinline__ void AddGroup(const Half& half, int token, int row, int group,
                                                  Chain<kType>& chain) {
    const auto& term = half.terms[group][token][row];
    if constexpr (P::kHasMin)
      chain.Add(term);
    else
      chain.Add({term.first, term.second, 0, 0});
    if constexpr (P::kK) {
      if (group % 8 == 7) {
        const Pair block = half.blocks[group / 8][row];
        chain.EndBlock(block.first, block.second);
      }
    }
  }
  // Adds `count` groups to one output.
  static __device__ __forceinline__ void AddUp(const Half& half, int token, int row, int count,
                                               Chain<kType>& chain) {
    constexpr int kUnroll = kRun < 16 ? kRun : 16;
    int group = 0;
    for (; group + kUnroll <= count; group += kUnroll) {
#pragma unroll
      for (int i = 0; i < kUnroll; ++i) AddGroup(half, token, row, group + i, chain);
    }
    for (; group < count; ++group) AddGroup(half, token, row, group, chain);
  }
};

template <DType kType, int kTokens, int kAhead, int kWarps>
__global__ void __launch_bounds__(32 * kWarps, Few<kType, kTokens, kAhead, kWarps>::kResident)
    FewTokens(GemmArgs args) {
  using F = Few<kType, kTokens, kAhead, kWarps>;
  auto* halves = ptx::DynamicShared<typename F::Half>();
  const int thread = threadIdx.x, tokens = args.x.tokens;
  const int groups = args.x.cols / 32, token = thread / kPanelRows, row = thread % kPanelRows;
  const bool adds = token < tokens;
  const std::uint8_t* run = args.weights + blockIdx.x * args.panel_bytes;
  Chain<kType> chain;
  typename F::Loaded loaded;
  F::Load(args, run, 0, groups, loaded);
  for (int begin = 0, half = 0; begin < groups; begin += F::kRun, half ^= 1) {
    const int left = groups - begin;
    F::Multiply(loaded, halves[half]);
    run += F::kRun / F::P::kBlockGroups * F::P::kBlockBytes;
    if (left > F::kRun) F::Load(args, run, begin + F::kRun, left - F::kRun, loaded);
    __syncthreads();
    if (adds) F::AddUp(halves[half], token, row, min(left, F::kRun), chain);
  }
  if (adds) args.out.Store(token, blockIdx.x * kPanelRows + row, chain.acc);
}

template <DType kType, int kTokens, int kAhead, int kWarps>
DeviceError Run(const GemmArgs& args, Stream stream) {
  constexpr std::size_t kShared = 2 * sizeof(typename Few<kType, kTokens, kAhead, kWarps>::Half);
  static_assert(kShared <= (48 << 10), "more must be asked for");
  return Launch(FewTokens<kType, kTokens, kAhead, kWarps>, NumPanels(args.out.rows), 32U * kWarps,
                kShared, stream, args);
}

}  // namespace

DeviceError GemmFew(DType type, const GemmArgs& args, Stream stream) {
  return ForQuantizedType(type, [&](auto constant) {
    constexpr DType kType = decltype(constant)::value;
    // More of a group than this for a warp at once does not fit the registers.
    using P = PanelTraits<kType>;
    constexpr bool kSmall = !P::kHasMin && !P::kFifth && !P::kIsQ6K;
    constexpr int kAhead = kSmall ? 4 : P::kFifth || P::kIsQ6K ? 1 : 2;
    constexpr int kOfTwo = P::kFifth ? 1 : 2, kOfMore = kSmall ? 2 : 1;
    constexpr int kWarpsOfTwo = kSmall ? 16 : 8;
    if (args.x.tokens == 1) return Run<kType, 1, kAhead, 16>(args, stream);
    if constexpr (P::kIsQ6K) {
      return Run<kType, 8, 1, 8>(args, stream);
    } else {
      if (args.x.tokens == 2) return Run<kType, 2, kOfTwo, kWarpsOfTwo>(args, stream);
      if (args.x.tokens <= 4) return Run<kType, 4, kOfMore, 8>(args, stream);
      return Run<kType, 8, kOfMore, 8>(args, stream);
    }
  });
}

}  // namespace thermocline::kernels::THERMOCLINE_CUDA
