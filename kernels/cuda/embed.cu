// Rows of packed matrices by ids that lie on the device: DequantizePackedRow's bits.
#include "kernels/cuda/dense.h"
#include "kernels/cuda/gemm_kernels.h"

namespace thermocline::kernels::THERMOCLINE_CUDA {
namespace {

constexpr int kThreads = 256;

// kernels/reference/panel_view.h's PanelLevel.
template <DType kType>
__device__ __forceinline__ int LevelAt(const std::uint8_t* block, int lane, int col) {
  using P = PanelTraits<kType>;
  const std::uint8_t* group = block + P::kHeader + col / 32 * P::kGroupBytes;
  const int c = col % 32, byte = lane * 4 + c % 4;
  if constexpr (P::kIsQ8) {
    return group[c / 4 * kQuadBytes + byte] - 128;
  } else if constexpr (P::kIsQ6K) {
    const std::uint8_t* sub = group + c / 16 * 192;
    const int low = sub[c % 16 / 8 * kQuadBytes + byte], high = sub[2 * kQuadBytes + byte];
    return ((c % 8 < 4 ? low & 15 : low >> 4) | ((high >> (c % 16 / 4 * 2)) & 3) << 4) -
           P::kLayout.offset;
  } else {
    const int nibbles = group[(P::kFifth ? 1 : 0) * kQuadBytes + c % 16 / 4 * kQuadBytes + byte];
    const int fifth = P::kFifth ? (group[byte] >> (c / 4)) & 1 : 0;
    return ((c < 16 ? nibbles & 15 : nibbles >> 4) | fifth << 4) - P::kLayout.offset;
  }
}

template <DType kType>
__device__ __forceinline__ float ElementAt(const std::uint8_t* panel, int lane, int col) {
  using P = PanelTraits<kType>;
  if constexpr (kType == DType::kF32) {
    return reinterpret_cast<const float*>(panel)[col * kPanelRows + lane];
  } else if constexpr (!Traits(kType).quantized) {
    const unsigned bits = LoadHalfBits(panel + (col * kPanelRows + lane) * 2);
    return kType == DType::kF16 ? FromHalfBits(bits) : __uint_as_float(bits << 16);
  } else {
    constexpr int kBlock = P::kBlockGroups * 32;
    const std::uint8_t* block = panel + col / kBlock * P::kBlockBytes;
    const int c = col % kBlock;
    const auto level = static_cast<float>(LevelAt<kType>(block, lane, c));
    const float d = FromHalfBits(LoadHalfBits(block + 2 * lane));
    float min = 0;
    if constexpr (P::kHasMin) min = FromHalfBits(LoadHalfBits(block + P::kMin + 2 * lane));
    if constexpr (P::kIsQ6K) {
      const int scale = static_cast<std::int8_t>(block[32 + c / 16 * kPanelRows + lane]);
      return __fmul_rn(__fmul_rn(d, static_cast<float>(scale)), level);
    } else if constexpr (P::kK) {
      unsigned words[3];
      for (int w = 0; w < 3; ++w) words[w] = LoadWord(block + 64 + w * kQuadBytes + lane * 4);
      const auto scale = static_cast<float>(SixBits(words, c / 32));
      const auto sub_min = static_cast<float>(SixBits(words, 8 + c / 32));
      return __fsub_rn(__fmul_rn(__fmul_rn(d, scale), level), __fmul_rn(min, sub_min));
    } else {
      const float value = __fmul_rn(d, level);
      return P::kHasMin ? __fadd_rn(value, min) : value;
    }
  }
}

struct EmbedArgs {
  const std::uint8_t* data;
  std::size_t panel_bytes;
  int rows, cols;
  const int* ids;       // [T], or null: consecutive rows from *position + offset
  const int* position;  // or null
  int offset;
  float* out;
};

template <DType kType>
__global__ void EmbedTokens(EmbedArgs p) {
  const int col = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  const auto token = static_cast<int>(blockIdx.y);
  if (col >= p.cols) return;
  const int row = p.ids != nullptr ? p.ids[token] : *p.position + token + p.offset;
  float value = 0;
  if (row >= 0 && row < p.rows) {
    value = ElementAt<kType>(p.data + static_cast<std::size_t>(row / kPanelRows) * p.panel_bytes,
                             row % kPanelRows, col);
  }
  float& out = p.out[static_cast<std::size_t>(token) * static_cast<std::size_t>(p.cols) +
                     static_cast<std::size_t>(col)];
  out = p.ids != nullptr ? value : __fadd_rn(out, value);
}

DeviceError Run(const PackedMatrix& matrix, EmbedArgs args, int tokens, Stream stream) {
  args.data = matrix.data;
  args.panel_bytes = PanelBytes(matrix.type, matrix.cols);
  args.rows = matrix.rows;
  args.cols = matrix.cols;
  const dim3 grid(static_cast<unsigned>((matrix.cols + kThreads - 1) / kThreads),
                  static_cast<unsigned>(tokens));
  const auto run = [&](auto type) {
    return Launch(EmbedTokens<decltype(type)::value>, grid, kThreads, 0, stream, args);
  };
  if (matrix.type == DType::kF32) return run(std::integral_constant<DType, DType::kF32>());
  if (matrix.type == DType::kF16) return run(std::integral_constant<DType, DType::kF16>());
  if (matrix.type == DType::kBF16) return run(std::integral_constant<DType, DType::kBF16>());
  return ForQuantizedType(matrix.type, run);
}

}  // namespace

DeviceError Embed(const DeviceEmbedParams& p, Stream stream) {
  EmbedArgs args{};
  args.out = p.out;
  args.ids = p.ids;
  const DeviceError error = Run(p.table, args, p.tokens, stream);
  if (error != 0 || p.positions.data == nullptr) return error;
  args.ids = nullptr;
  args.position = p.position;
  args.offset = p.position_offset;
  return Run(p.positions, args, p.tokens, stream);
}

}  // namespace thermocline::kernels::THERMOCLINE_CUDA
