#include "engine/model/code_values.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>

#include "engine/base/bytes.h"
#include "kernels/quantize.h"

namespace thermocline::model {
namespace {

using kernels::DType;

// A sign, `exponent_bits` and `mantissa_bits`, with subnormals and without infinities.
float SmallFloat(int code, int exponent_bits, int mantissa_bits) {
  const int exponent = code >> mantissa_bits & ((1 << exponent_bits) - 1),
            mantissa = code & ((1 << mantissa_bits) - 1), bias = (1 << (exponent_bits - 1)) - 1;
  const bool negative = (code >> (exponent_bits + mantissa_bits) & 1) != 0;
  const int whole = exponent == 0 ? mantissa : mantissa + (1 << mantissa_bits);
  const float value =
      std::ldexp(static_cast<float>(whole), std::max(exponent, 1) - bias - mantissa_bits);
  return negative ? -value : value;
}

template <typename Value>
CodeValues Table(Value value) {
  CodeValues out{};
  for (int code = 0; code < 256; ++code) out[code] = value(code);
  return out;
}

const CodeValues& PowerValues() {  // E8M0
  static const CodeValues kTable =
      Table([](int code) { return code == 255 ? NAN : std::ldexp(1.0F, code - 127); });
  return kTable;
}

}  // namespace

const CodeValues& Fp8Values() {
  static const CodeValues kTable =
      Table([](int code) { return (code & 127) == 127 ? NAN : SmallFloat(code, 4, 3); });
  return kTable;
}

const CodeValues& Fp4Values() {
  static const CodeValues kTable = Table([](int code) { return SmallFloat(code & 15, 2, 1); });
  return kTable;
}

const CodeValues& Int8Values() {
  static const CodeValues kTable =
      Table([](int code) { return static_cast<float>(static_cast<std::int8_t>(code)); });
  return kTable;
}

const CodeValues& OffsetValues(int bits) {
  static const CodeValues kOf4 =
                              Table([](int code) { return static_cast<float>((code & 15) - 8); }),
                          kOf8 = Table([](int code) { return static_cast<float>(code - 128); });
  return bits == 4 ? kOf4 : kOf8;
}

int ScaleBytes(const std::string& type) {
  static const std::map<std::string, int> kBytes = {{"F32", 4},     {"F16", 2},     {"BF16", 2},
                                                    {"F8_E4M3", 1}, {"F8_E8M0", 1}, {"U8", 1}};
  const auto found = kBytes.find(type);
  return found == kBytes.end() ? 0 : found->second;
}

void ToFloats(const std::string& type, std::span<const std::byte> bytes, std::span<float> out) {
  static const std::map<std::string, DType> kFloats = {
      {"F32", DType::kF32}, {"F16", DType::kF16}, {"BF16", DType::kBF16}};
  if (const auto plain = kFloats.find(type); plain != kFloats.end()) {
    kernels::DequantizeRow(plain->second, base::Octets(bytes.data()), static_cast<int>(out.size()),
                           out.data());
    return;
  }
  const CodeValues& values = type == "F8_E4M3" ? Fp8Values() : PowerValues();
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = values[std::to_integer<int>(bytes[i])];
}

}  // namespace thermocline::model
