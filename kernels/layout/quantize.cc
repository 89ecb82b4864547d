// Rows between GGUF blocks and floats.
//
// Source: the block formats of ggml's GGUF files.
#include "kernels/quantize.h"

#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/block_codecs.h"
#include "kernels/layout/codecs.h"
#include "kernels/layout/panel_view.h"

namespace thermocline::kernels {
namespace {

void Store16(std::uint8_t* p, std::uint16_t value) { std::memcpy(p, &value, 2); }

// Elements of the float types, as blocks of one.
void DequantizeF32(const std::uint8_t* p, float* out) { std::memcpy(out, p, 4); }
void DequantizeF16(const std::uint8_t* p, float* out) { *out = HalfToFloat(Load16(p)); }
void DequantizeBF16(const std::uint8_t* p, float* out) { *out = BfloatToFloat(Load16(p)); }
void QuantizeF32(const float* x, std::uint8_t* p, const float*) { std::memcpy(p, x, 4); }
void QuantizeF16(const float* x, std::uint8_t* p, const float*) { Store16(p, FloatToHalf(*x)); }
void QuantizeBF16(const float* x, std::uint8_t* p, const float*) { Store16(p, FloatToBfloat(*x)); }

void DequantizeQ8_0(const std::uint8_t* block, float* out) {
  const float d = HalfToFloat(Load16(block));
  for (int i = 0; i < 32; ++i) out[i] = Scaled(d, static_cast<std::int8_t>(block[2 + i]));
}

void DequantizeQ4_0(const std::uint8_t* block, float* out) {
  const float d = HalfToFloat(Load16(block));
  for (int i = 0; i < 16; ++i) {
    out[i] = Scaled(d, (block[2 + i] & 15) - 8);
    out[i + 16] = Scaled(d, (block[2 + i] >> 4) - 8);
  }
}

void DequantizeQ4_1(const std::uint8_t* block, float* out) {
  const float d = HalfToFloat(Load16(block)), m = HalfToFloat(Load16(block + 2));
  for (int i = 0; i < 16; ++i) {
    out[i] = Scaled(d, block[4 + i] & 15) + m;
    out[i + 16] = Scaled(d, block[4 + i] >> 4) + m;
  }
}

void QuantizeQ8_0(const float* x, std::uint8_t* block, const float*) {
  float max = 0;
  for (int i = 0; i < 32; ++i) max = std::fmax(max, std::fabs(x[i]));
  const float d = max / 127.0F, inverse = d == 0 ? 0.0F : 1.0F / d;
  Store16(block, FloatToHalf(d));
  for (int i = 0; i < 32; ++i)
    block[2 + i] = static_cast<std::uint8_t>(static_cast<int>(std::round(x[i] * inverse)));
}

void QuantizeQ4_0(const float* x, std::uint8_t* block, const float* importance) {
  if (importance != nullptr) return QuantizeQ4_0WithImportance(x, block, importance);
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

constexpr Codec kCodecs[kNumDTypes] = {
    {DType::kF32, DequantizeF32, QuantizeF32, PackFloat, {-1, -1}},
    {DType::kF16, DequantizeF16, QuantizeF16, PackFloat, {0, -1}},
    {DType::kBF16, DequantizeBF16, QuantizeBF16, PackFloat, {-1, -1}},
    {DType::kQ8_0, DequantizeQ8_0, QuantizeQ8_0, PackQ8_0, {0, -1}},
    {DType::kQ4_0, DequantizeQ4_0, QuantizeQ4_0, PackBlock32, {0, -1}},
    {DType::kQ4_1, DequantizeQ4_1, QuantizeQ4_1, PackBlock32, {0, 2}},
    {DType::kQ5_0, DequantizeQ5_0, QuantizeQ5_0, PackBlock32, {0, -1}},
    {DType::kQ5_1, DequantizeQ5_1, QuantizeQ5_1, PackBlock32, {0, 2}},
    {DType::kQ4_K, DequantizeQ4K, QuantizeQ4K, PackQ4KOrQ5K, {0, 2}},
    {DType::kQ5_K, DequantizeQ5K, QuantizeQ5K, PackQ4KOrQ5K, {0, 2}},
    {DType::kQ6_K, DequantizeQ6K, QuantizeQ6K, PackQ6K, {208, -1}},
    {DType::kQ2_K, DequantizeQ2K, QuantizeQ2K, PackQ2K, {80, 82}},
    {DType::kQ3_K, DequantizeQ3K, QuantizeQ3K, PackQ3K, {108, -1}},
    {DType::kIQ4_NL, DequantizeIq4Nl, QuantizeIq4Nl, PackBlock32, {0, -1}},
    {DType::kIQ4_XS, DequantizeIq4Xs, QuantizeIq4Xs, PackIq4Xs, {0, -1}},
    {DType::kMXFP4, DequantizeMxfp4, QuantizeMxfp4, PackBlock32, {-1, -1}},
    {DType::kTQ2_0, DequantizeTq2, QuantizeTq2, PackTq2, {64, -1}},
};
static_assert([] {
  for (int i = 0; i < kNumDTypes; ++i)
    if (static_cast<int>(kCodecs[i].type) != i) return false;
  return true;
}());

// Calls body(block index) for every block of a row of `n` elements.
template <typename Body>
void ForBlocks(DType type, int n, const Body& body) {
  for (int b = 0; b < n / Traits(type).block_size; ++b) body(b);
}

// A conversion block by block, which does not go by way of floats.
struct Conversion {
  DType from, to;
  bool exact;
  void (*convert)(const std::uint8_t*, std::uint8_t*);
};
constexpr Conversion kConversions[] = {
    {DType::kQ3_K, DType::kQ6_K, true, ConvertQ3KToQ6K},
    {DType::kIQ4_NL, DType::kQ8_0, true, ConvertIq4NlToQ8_0},
    {DType::kIQ4_XS, DType::kQ8_0, false, ConvertIq4XsToQ8_0},
    {DType::kMXFP4, DType::kQ5_0, true, ConvertMxfp4ToQ5_0},
    {DType::kTQ2_0, DType::kQ4_0, true, ConvertTq2ToQ4_0},
};
const Conversion* FindConversion(DType from, DType to) {
  for (const Conversion& conversion : kConversions) {
    if (conversion.from == from && conversion.to == to) return &conversion;
  }
  return nullptr;
}

bool IsFiniteBlock(DType type, const std::uint8_t* block) {
  if (!Traits(type).quantized) {
    float value;
    CodecOf(type).dequantize(block, &value);
    return std::isfinite(value);
  }
  if (type == DType::kMXFP4 && block[0] == 255) return false;  // E8M0's NaN
  for (const int at : CodecOf(type).halves) {
    if (at >= 0 && !std::isfinite(HalfToFloat(Load16(block + at)))) return false;
  }
  return true;
}

}  // namespace

const Codec& CodecOf(DType type) { return kCodecs[static_cast<int>(type)]; }

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
  if (type == DType::kF32) {
    std::memcpy(out, row, sizeof(float) * n);
    return;
  }
  const DTypeTraits& traits = Traits(type);
  ForBlocks(type, n, [&](int b) {
    CodecOf(type).dequantize(row + StartOf(b, traits.block_bytes), out + b * traits.block_size);
  });
}

void QuantizeRow(DType type, const float* x, int n, std::uint8_t* row, const float* importance) {
  const DTypeTraits& traits = Traits(type);
  ForBlocks(type, n, [&](int b) {
    CodecOf(type).quantize(x + b * traits.block_size, row + StartOf(b, traits.block_bytes),
                           importance == nullptr ? nullptr : importance + b * traits.block_size);
  });
}

DType DeviceType(DType type) {
  for (const Conversion& conversion : kConversions) {
    if (conversion.from == type) return conversion.to;
  }
  return type == DType::kQ2_K ? DType::kQ6_K : type;
}

bool ConvertsExactly(DType from, DType to) {
  const Conversion* conversion = FindConversion(from, to);
  return from == to || (conversion != nullptr && conversion->exact);
}

void ConvertRow(DType from, const std::uint8_t* row, int n, DType to, std::uint8_t* out) {
  if (const Conversion* conversion = FindConversion(from, to)) {
    const int columns = Traits(from).block_size;
    ForBlocks(from, n, [&](int block) {
      conversion->convert(row + block * RowBytes(from, columns),
                          out + block * RowBytes(to, columns));
    });
    return;
  }
  std::vector<float> values(n);
  DequantizeRow(from, row, n, values.data());
  QuantizeRow(to, values.data(), n, out);
}

int FindNonFiniteBlock(DType type, const std::uint8_t* row, int n) {
  for (int b = 0; b < n / Traits(type).block_size; ++b) {
    if (!IsFiniteBlock(type, row + StartOf(b, Traits(type).block_bytes))) return b;
  }
  return -1;
}

}  // namespace thermocline::kernels
