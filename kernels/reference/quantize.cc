// Rows between GGUF blocks, floats and panels; the activations' oracle.
//
// Source: the block formats of ggml's GGUF files.
#include "kernels/quantize.h"

#include <cmath>
#include <cstring>

#include "kernels/reference/reference.h"

namespace thermocline::kernels {
namespace {

std::uint16_t Load16(const std::uint8_t* p) {
  std::uint16_t value;
  std::memcpy(&value, p, 2);
  return value;
}

void Store16(std::uint8_t* p, std::uint16_t value) { std::memcpy(p, &value, 2); }

// Value of column `c` in a row's Q6_K block: 6 bits, 0..63.
int SixBits(const std::uint8_t* block, int c) {
  const int half = c / 128, in_half = c % 128, quarter = in_half / 32, i = in_half % 32;
  const std::uint8_t low = block[half * 64 + (quarter % 2) * 32 + i];
  const std::uint8_t high = block[128 + half * 32 + i];
  return (quarter < 2 ? low & 15 : low >> 4) | ((high >> (2 * quarter)) & 3) << 4;
}

void DequantizeBlock(DType type, const std::uint8_t* block, float* out) {
  const float d = HalfToFloat(Load16(type == DType::kQ6_K ? block + 208 : block));
  switch (type) {
    case DType::kQ8_0:
      for (int i = 0; i < 32; ++i)
        out[i] = d * static_cast<float>(static_cast<std::int8_t>(block[2 + i]));
      return;
    case DType::kQ4_0:
      for (int i = 0; i < 16; ++i) {
        out[i] = d * static_cast<float>((block[2 + i] & 15) - 8);
        out[i + 16] = d * static_cast<float>((block[2 + i] >> 4) - 8);
      }
      return;
    case DType::kQ4_1: {
      const float m = HalfToFloat(Load16(block + 2));
      for (int i = 0; i < 16; ++i) {
        out[i] = d * static_cast<float>(block[4 + i] & 15) + m;
        out[i + 16] = d * static_cast<float>(block[4 + i] >> 4) + m;
      }
      return;
    }
    default:
      for (int c = 0; c < 256; ++c) {
        const auto scale = static_cast<std::int8_t>(block[192 + c / 16]);
        out[c] = d * static_cast<float>(scale) * static_cast<float>(SixBits(block, c) - 32);
      }
  }
}

void QuantizeBlockQ8_0(const float* x, std::uint8_t* block) {
  float max = 0;
  for (int i = 0; i < 32; ++i) max = std::fmax(max, std::fabs(x[i]));
  const float d = max / 127.0F, inverse = d == 0 ? 0.0F : 1.0F / d;
  Store16(block, FloatToHalf(d));
  for (int i = 0; i < 32; ++i)
    block[2 + i] = static_cast<std::uint8_t>(static_cast<int>(std::round(x[i] * inverse)));
}

void QuantizeBlockQ4_0(const float* x, std::uint8_t* block) {
  float extreme = 0;  // the value of largest magnitude, with its sign, maps to -8
  for (int i = 0; i < 32; ++i) extreme = std::fabs(x[i]) > std::fabs(extreme) ? x[i] : extreme;
  const float d = extreme / -8.0F, inverse = d == 0 ? 0.0F : 1.0F / d;
  Store16(block, FloatToHalf(d));
  const auto level = [&](float value) {
    const int q = static_cast<int>(value * inverse + 8.5F);
    return q > 15 ? 15 : q;
  };
  for (int i = 0; i < 16; ++i)
    block[2 + i] = static_cast<std::uint8_t>(level(x[i]) | level(x[i + 16]) << 4);
}

// One row's block into its lane of the panel's block.
void PackBlock(DType type, const std::uint8_t* block, int lane, std::uint8_t* out) {
  switch (type) {
    case DType::kQ8_0:
      std::memcpy(out + 2 * lane, block, 2);
      for (int i = 0; i < 8; ++i) {
        std::uint32_t quad;
        std::memcpy(&quad, block + 2 + 4 * i, 4);
        quad ^= 0x80808080U;  // q + 128
        std::memcpy(out + 32 + i * 64 + lane * 4, &quad, 4);
      }
      return;
    case DType::kQ4_0:
      std::memcpy(out + 2 * lane, block, 2);
      for (int i = 0; i < 4; ++i) std::memcpy(out + 32 + i * 64 + lane * 4, block + 2 + 4 * i, 4);
      return;
    case DType::kQ4_1:
      std::memcpy(out + 2 * lane, block, 2);
      std::memcpy(out + 32 + 2 * lane, block + 2, 2);
      for (int i = 0; i < 4; ++i) std::memcpy(out + 64 + i * 64 + lane * 4, block + 4 + 4 * i, 4);
      return;
    default:
      std::memcpy(out + 2 * lane, block + 208, 2);
      for (int sub = 0; sub < 16; ++sub) out[32 + sub * 16 + lane] = block[192 + sub];
      for (int c = 0; c < 256; ++c) {
        const int q = SixBits(block, c), in_sub = c % 16;
        std::uint8_t* sub_block = out + 288 + c / 16 * 192;
        sub_block[in_sub / 8 * 64 + lane * 4 + in_sub % 4] |=
            static_cast<std::uint8_t>((q & 15) << (in_sub % 8 < 4 ? 0 : 4));
        sub_block[128 + lane * 4 + in_sub % 4] |=
            static_cast<std::uint8_t>((q >> 4) << (in_sub / 4 * 2));
      }
  }
}

}  // namespace

float HalfToFloat(std::uint16_t half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000) << 16;
  const std::uint32_t exponent = (half >> 10) & 31, mantissa = half & 1023;
  if (exponent == 0) {
    const float value = static_cast<float>(mantissa) * 0x1p-24F;
    return sign != 0 ? -value : value;
  }
  const std::uint32_t bits =
      sign | (exponent == 31 ? 0x7F800000U : (exponent + 112) << 23) | mantissa << 13;
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

std::uint16_t FloatToHalf(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, 4);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000);
  const std::uint32_t magnitude = bits & 0x7FFFFFFF;
  if (magnitude > 0x7F800000) return sign | 0x7E00;   // NaN
  if (magnitude >= 0x477FF000) return sign | 0x7C00;  // rounds to infinity
  if (magnitude < 0x38800000) {                       // subnormal or zero: let the adder round
    const float scaled = std::fabs(value) + 0.5F;
    std::uint32_t sum;
    std::memcpy(&sum, &scaled, 4);
    return static_cast<std::uint16_t>(sign | (sum - 0x3F000000));
  }
  const std::uint32_t odd = (magnitude >> 13) & 1;
  return static_cast<std::uint16_t>(sign | ((magnitude - 0x38000000 + 0xFFF + odd) >> 13));
}

float BfloatToFloat(std::uint16_t value) {
  const std::uint32_t bits = static_cast<std::uint32_t>(value) << 16;
  float out;
  std::memcpy(&out, &bits, 4);
  return out;
}

std::uint16_t FloatToBfloat(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, 4);
  if ((bits & 0x7FFFFFFF) > 0x7F800000) return static_cast<std::uint16_t>((bits >> 16) | 64);
  return static_cast<std::uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

void DequantizeRow(DType type, const std::uint8_t* row, int n, float* out) {
  switch (type) {
    case DType::kF32:
      std::memcpy(out, row, static_cast<std::size_t>(n) * 4);
      return;
    case DType::kF16:
      for (int i = 0; i < n; ++i) out[i] = HalfToFloat(Load16(row + 2 * i));
      return;
    case DType::kBF16:
      for (int i = 0; i < n; ++i) out[i] = BfloatToFloat(Load16(row + 2 * i));
      return;
    default:
      const DTypeTraits& traits = Traits(type);
      for (int b = 0; b < n / traits.block_size; ++b) {
        DequantizeBlock(type, row + static_cast<std::ptrdiff_t>(b) * traits.block_bytes,
                        out + b * traits.block_size);
      }
  }
}

bool CanQuantize(DType type) { return type != DType::kQ4_1 && type != DType::kQ6_K; }

void QuantizeRow(DType type, const float* x, int n, std::uint8_t* row) {
  switch (type) {
    case DType::kF32:
      std::memcpy(row, x, static_cast<std::size_t>(n) * 4);
      return;
    case DType::kF16:
      for (int i = 0; i < n; ++i) Store16(row + 2 * i, FloatToHalf(x[i]));
      return;
    case DType::kBF16:
      for (int i = 0; i < n; ++i) Store16(row + 2 * i, FloatToBfloat(x[i]));
      return;
    default:
      for (int b = 0; b < n / 32; ++b) {
        std::uint8_t* block = row + static_cast<std::ptrdiff_t>(b) * Traits(type).block_bytes;
        if (type == DType::kQ8_0) QuantizeBlockQ8_0(x + b * 32, block);
        if (type == DType::kQ4_0) QuantizeBlockQ4_0(x + b * 32, block);
      }
  }
}

void PackPanel(DType type, const std::uint8_t* rows, int num_rows, int cols, std::uint8_t* panel) {
  const DTypeTraits& traits = Traits(type);
  const std::size_t block_bytes = static_cast<std::size_t>(traits.block_bytes);
  std::memset(panel, 0, PanelBytes(type, cols));
  for (int b = 0; b < cols / traits.block_size; ++b) {
    std::uint8_t* out = panel + static_cast<std::size_t>(b) * kPanelRows * block_bytes;
    for (int lane = 0; lane < num_rows; ++lane) {
      const std::uint8_t* block = rows + static_cast<std::size_t>(lane) * RowBytes(type, cols) +
                                  static_cast<std::size_t>(b) * block_bytes;
      if (traits.quantized) {
        PackBlock(type, block, lane, out);
      } else {
        std::memcpy(out + static_cast<std::size_t>(lane) * block_bytes, block, block_bytes);
      }
    }
  }
}

void DequantizePackedRow(const PackedMatrix& matrix, int row, float* out) {
  const DTypeTraits& traits = Traits(matrix.type);
  const int lane = row % kPanelRows;
  const std::uint8_t* block = matrix.panel(row / kPanelRows);
  for (int c = 0; c < matrix.cols; c += traits.block_size) {
    switch (matrix.type) {
      case DType::kQ8_0:
        for (int i = 0; i < 32; ++i) {
          out[c + i] = HalfToFloat(Load16(block + 2 * lane)) *
                       static_cast<float>(block[32 + i / 4 * 64 + lane * 4 + i % 4] - 128);
        }
        break;
      case DType::kQ4_0:
      case DType::kQ4_1: {
        const bool has_min = matrix.type == DType::kQ4_1;
        const float d = HalfToFloat(Load16(block + 2 * lane));
        const float m = has_min ? HalfToFloat(Load16(block + 32 + 2 * lane)) : -8.0F * d;
        for (int i = 0; i < 32; ++i) {
          const std::uint8_t byte =
              block[(has_min ? 64 : 32) + (i % 16) / 4 * 64 + lane * 4 + i % 4];
          out[c + i] = d * static_cast<float>(i < 16 ? byte & 15 : byte >> 4) + m;
        }
        break;
      }
      case DType::kQ6_K:
        for (int i = 0; i < 256; ++i) {
          const std::uint8_t* sub_block = block + 288 + i / 16 * 192;
          const int in_sub = i % 16;
          const std::uint8_t low = sub_block[in_sub / 8 * 64 + lane * 4 + in_sub % 4];
          const int high = (sub_block[128 + lane * 4 + in_sub % 4] >> (in_sub / 4 * 2)) & 3;
          const int q = ((in_sub % 8 < 4 ? low & 15 : low >> 4) | high << 4) - 32;
          const auto scale = static_cast<std::int8_t>(block[32 + i / 16 * 16 + lane]);
          out[c + i] = HalfToFloat(Load16(block + 2 * lane)) * static_cast<float>(scale) *
                       static_cast<float>(q);
        }
        break;
      case DType::kF32:
        std::memcpy(out + c, block + 4 * lane, 4);
        break;
      case DType::kF16:
        out[c] = HalfToFloat(Load16(block + 2 * lane));
        break;
      case DType::kBF16:
        out[c] = BfloatToFloat(Load16(block + 2 * lane));
        break;
    }
    block += static_cast<std::ptrdiff_t>(kPanelRows) * traits.block_bytes;
  }
}

namespace reference {

void Quantize(const QuantizeParams& p) {
  for (int b = 0; b < p.n / kActivationBlock; ++b) {
    const float* x = p.x + b * kActivationBlock;
    float max = 0;
    for (int i = 0; i < kActivationBlock; ++i) max = std::fabs(x[i]) > max ? std::fabs(x[i]) : max;
    const float inverse = max > 0 ? 127.0F / max : 0.0F;
    std::int32_t sum = 0;
    for (int i = 0; i < kActivationBlock; ++i) {
      const int q = static_cast<int>(std::nearbyint(x[i] * inverse));
      p.q[b * kActivationBlock + i] = static_cast<std::int8_t>(q);
      sum += q;
    }
    p.scale[b] = max / 127.0F;
    p.sum[b] = sum;
  }
}

}  // namespace reference
}  // namespace thermocline::kernels
