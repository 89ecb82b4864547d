#include "kernels/block_codecs.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>

#include "kernels/iq_codecs.h"
#include "kernels/quantize.h"
#include "tests/kernels/tables.h"

namespace thermocline::kernels {
namespace {

using Bytes = std::vector<std::uint8_t>;
using Floats = std::vector<float>;

struct Golden {
  const char* name;
  int num_blocks, block_bytes, columns;
  void (*dequantize)(const std::uint8_t*, float*);
};

// In the order of tests/golden/make_block_codecs.py.
void DequantizeTq1(const std::uint8_t* block, float* out) {
  std::uint8_t tq2[kBytesTq2];
  ConvertTq1ToTq2(block, tq2);
  DequantizeTq2(tq2, out);
}

constexpr Golden kGolden[] = {
    {"Q5_0", 16, kBytesQ5_0, 32, DequantizeQ5_0},
    {"Q5_1", 16, kBytesQ5_1, 32, DequantizeQ5_1},
    {"IQ4_NL", 16, kBytesIq4Nl, 32, DequantizeIq4Nl},
    {"Q2_K", 8, kBytesQ2K, 256, DequantizeQ2K},
    {"Q3_K", 8, kBytesQ3K, 256, DequantizeQ3K},
    {"Q4_K", 8, kBytesQ4K, 256, DequantizeQ4K},
    {"Q5_K", 8, kBytesQ5K, 256, DequantizeQ5K},
    {"Q6_K", 8, kBytesQ6K, 256, DequantizeQ6K},
    {"IQ4_XS", 8, kBytesIq4Xs, 256, DequantizeIq4Xs},
    {"MXFP4", 16, kBytesMxfp4, 32, DequantizeMxfp4},
    {"TQ2_0", 8, kBytesTq2, 256, DequantizeTq2},
    {"TQ1_0", 8, kBytesTq1, 256, DequantizeTq1},
    {"IQ2_XXS", 8, kBytesIq2Xxs, 256, DequantizeIq2Xxs},
    {"IQ2_XS", 8, kBytesIq2Xs, 256, DequantizeIq2Xs},
    {"IQ2_S", 8, kBytesIq2S, 256, DequantizeIq2S},
    {"IQ3_XXS", 8, kBytesIq3Xxs, 256, DequantizeIq3Xxs},
    {"IQ3_S", 8, kBytesIq3S, 256, DequantizeIq3S},
};

void DequantizeQ4_1(const std::uint8_t* block, float* out) {
  DequantizeRow(DType::kQ4_1, block, 32, out);
}

struct Codec {
  const char* name;
  int block_bytes, columns;
  void (*quantize)(const float*, std::uint8_t*, const float*);
  void (*dequantize)(const std::uint8_t*, float*);
  // Root mean square error over root mean square: measured on the test's data, plus 2%.
  double gaussian_error_max, heavy_tailed_error_max;
};

constexpr Codec kCodecs[] = {
    {"Q4_1", kBytesQ4_1, 32, QuantizeQ4_1, DequantizeQ4_1, 0.0725, 0.0895},
    {"Q5_0", kBytesQ5_0, 32, QuantizeQ5_0, DequantizeQ5_0, 0.0414, 0.0594},
    {"Q5_1", kBytesQ5_1, 32, QuantizeQ5_1, DequantizeQ5_1, 0.0350, 0.0460},
    {"Q2_K", kBytesQ2K, 256, QuantizeQ2K, DequantizeQ2K, 0.2801, 0.2766},
    {"Q3_K", kBytesQ3K, 256, QuantizeQ3K, DequantizeQ3K, 0.1507, 0.1521},
    {"Q4_K", kBytesQ4K, 256, QuantizeQ4K, DequantizeQ4K, 0.0728, 0.0910},
    {"Q5_K", kBytesQ5K, 256, QuantizeQ5K, DequantizeQ5K, 0.0359, 0.0491},
    {"Q6_K", kBytesQ6K, 256, QuantizeQ6K, DequantizeQ6K, 0.0177, 0.0248},
};

// Three levels: see TernaryWeightsStay.
constexpr Codec kTernary = {"TQ2_0", kBytesTq2, 256, QuantizeTq2, DequantizeTq2, 0.4455, 0.6042};

// Some constants, and zeros beside an outlier, have no level in a codebook.
constexpr Codec kCodebooks[] = {
    {"IQ4_NL", kBytesIq4Nl, 32, QuantizeIq4Nl, DequantizeIq4Nl, 0.0763, 0.0894},
    {"IQ4_XS", kBytesIq4Xs, 256, QuantizeIq4Xs, DequantizeIq4Xs, 0.0770, 0.0908},
    {"MXFP4", kBytesMxfp4, 32, QuantizeMxfp4, DequantizeMxfp4, 0.1146, 0.1361},
};

std::vector<Codec> AllCodecs() {
  std::vector<Codec> all(std::begin(kCodecs), std::end(kCodecs));
  all.insert(all.end(), std::begin(kCodebooks), std::end(kCodebooks));
  all.push_back(kTernary);
  return all;
}

Floats ThereAndBack(const Codec& codec, const Floats& x) {
  const auto columns = static_cast<std::size_t>(codec.columns);
  Bytes block(static_cast<std::size_t>(codec.block_bytes), 0xA5);  // old bytes must be overwritten
  Floats out(x.size());
  for (std::size_t i = 0; i < x.size(); i += columns) {
    codec.quantize(x.data() + i, block.data(), nullptr);
    codec.dequantize(block.data(), out.data() + i);
  }
  return out;
}

double RelativeError(const Floats& x, const Floats& y) {
  double error = 0, total = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    error += std::pow(static_cast<double>(y[i]) - x[i], 2);
    total += std::pow(static_cast<double>(x[i]), 2);
  }
  return std::sqrt(error / total);
}

TEST(BlockCodecs, FloatsHaveTheBitsOfTheGgufPackage) {
  std::ifstream file(SOURCE_DIR "/tests/golden/block_codecs.bin", std::ios::binary);
  for (const Golden& golden : kGolden) {
    const auto num = static_cast<std::size_t>(golden.num_blocks);
    const auto bytes = static_cast<std::size_t>(golden.block_bytes);
    const auto columns = static_cast<std::size_t>(golden.columns);
    Bytes blocks(num * bytes);
    Floats expected(num * columns), got(num * columns);
    file.read(reinterpret_cast<char*>(blocks.data()), static_cast<std::streamsize>(blocks.size()));
    file.read(reinterpret_cast<char*>(expected.data()),
              static_cast<std::streamsize>(expected.size() * sizeof(float)));
    ASSERT_TRUE(file.good()) << golden.name;
    for (std::size_t b = 0; b < num; ++b)
      golden.dequantize(blocks.data() + b * bytes, got.data() + b * columns);
    for (std::size_t i = 0; i < got.size(); ++i) {
      ASSERT_EQ(std::memcmp(&got[i], &expected[i], sizeof(float)), 0)
          << golden.name << " column " << i << ": " << got[i] << " is not " << expected[i];
    }
  }
  EXPECT_EQ(file.peek(), std::ifstream::traits_type::eof());
}

TEST(BlockCodecs, Q3KIsTheSameWeightsAsQ6K) {
  std::mt19937 generator(21);
  Bytes q3k(kBytesQ3K), q6k(kBytesQ6K, 0xA5);
  Floats expected(256), got(256);
  for (int trial = 0; trial < 20; ++trial) {
    for (auto& byte : q3k) byte = static_cast<std::uint8_t>(generator());
    q3k[109] &= 0xBF;  // d below 2: finite
    ConvertQ3KToQ6K(q3k.data(), q6k.data());
    DequantizeQ3K(q3k.data(), expected.data());
    DequantizeQ6K(q6k.data(), got.data());
    EXPECT_EQ(got, expected);
  }
}

TEST(BlockCodecs, Iq4NlIsTheSameWeightsAsQ8_0) {
  std::mt19937 generator(22);
  Bytes iq4nl(kBytesIq4Nl), q8_0(RowBytes(DType::kQ8_0, 32));
  Floats expected(32), got(32);
  for (int trial = 0; trial < 20; ++trial) {
    for (auto& byte : iq4nl) byte = static_cast<std::uint8_t>(generator());
    iq4nl[1] &= 0xBF;
    ConvertIq4NlToQ8_0(iq4nl.data(), q8_0.data());
    DequantizeIq4Nl(iq4nl.data(), expected.data());
    DequantizeRow(DType::kQ8_0, q8_0.data(), 32, got.data());
    EXPECT_EQ(got, expected);
  }
}

TEST(BlockCodecs, QuantizedWeightsComeBackWithinTheMeasuredError) {
  const Floats gaussian = RandomFloats(256 * 64, 23, 0.02F);
  Floats heavy_tailed = RandomFloats(256 * 64, 24);
  for (float& x : heavy_tailed) x *= 0.02F * x * x;
  for (const Codec& codec : AllCodecs()) {
    EXPECT_LT(RelativeError(gaussian, ThereAndBack(codec, gaussian)), codec.gaussian_error_max)
        << codec.name;
    EXPECT_LT(RelativeError(heavy_tailed, ThereAndBack(codec, heavy_tailed)),
              codec.heavy_tailed_error_max)
        << codec.name;
  }
}

TEST(BlockCodecs, TernaryWeightsStay) {
  std::mt19937 generator(27);
  for (const float d : {1.0F, 0.37F, 3e-5F, 1000.0F}) {
    const float scale = HalfToFloat(FloatToHalf(d));
    Floats x(256);
    for (float& value : x)
      value = scale * static_cast<float>(static_cast<int>(generator() % 3) - 1);
    EXPECT_EQ(ThereAndBack(kTernary, x), x) << d;
    Bytes tq2(kBytesTq2), q4_0(8 * 18, 0xA5);
    Floats got(256);
    QuantizeTq2(x.data(), tq2.data());
    ConvertTq2ToQ4_0(tq2.data(), q4_0.data());
    DequantizeRow(DType::kQ4_0, q4_0.data(), 256, got.data());
    EXPECT_EQ(got, x) << d;
  }
}

TEST(BlockCodecs, ZeroBlocksStayZero) {
  for (const Codec& codec : AllCodecs())
    EXPECT_EQ(ThereAndBack(codec, Floats(256, 0.0F)), Floats(256, 0.0F)) << codec.name;
}

TEST(BlockCodecs, ConstantBlocksKeepTheirValue) {
  for (const Codec& codec : kCodecs) {
    for (const float value : {1.0F, -1.0F, 0.37F, -3000.0F}) {
      // Derived: one level and one scale serve all columns, so only the f16 factor rounds, by at
      // most one unit in the last of its 11 bits.
      for (const float got : ThereAndBack(codec, Floats(256, value)))
        ASSERT_NEAR(got, value, std::fabs(value) * 0x1p-10F) << codec.name;
    }
  }
}

TEST(BlockCodecs, AnOutlierKeepsItsValueAndTheZerosAroundIt) {
  for (const Codec& codec : kCodecs) {
    for (const float value : {100.0F, -100.0F}) {
      Floats x(256, 0.0F);
      x[77] = value;
      const Floats got = ThereAndBack(codec, x);
      // Derived: zero is a multiple of the scale less the min, both f16 factors within 2^-10.
      for (std::size_t i = 0; i < got.size(); ++i)
        ASSERT_NEAR(got[i], x[i], 100 * 0x1p-9) << codec.name << " " << i;
    }
  }
}

TEST(BlockCodecs, WeightsBelowTheNormalHalvesKeepTheirPrecision) {
  const Floats tiny = RandomFloats(256 * 8, 25, 1e-5F);
  // Measured: up to 1.17 times the limit for larger weights (Q6_K), as the f16 factors are the
  // smallest that exist and the stored scales have few values left.
  for (const Codec& codec : kCodecs) {
    EXPECT_LT(RelativeError(tiny, ThereAndBack(codec, tiny)), 1.2 * codec.gaussian_error_max)
        << codec.name;
  }
}

TEST(BlockCodecs, HugeAndTinyWeightsGiveFiniteBlocks) {
  constexpr float kHuge = std::numeric_limits<float>::max();
  constexpr float kTiny = std::numeric_limits<float>::denorm_min();
  for (const Codec& codec : AllCodecs()) {
    for (const float size : {kHuge, 1e30F, 1e-30F, kTiny}) {
      Floats x = RandomFloats(256, 26);
      for (float& value : x) value = std::clamp(value, -1.0F, 1.0F) * size;
      for (const float value : {0.0F, kTiny, 1.0F}) {
        x[5] = value;
        for (const float got : ThereAndBack(codec, x))
          ASSERT_TRUE(std::isfinite(got)) << codec.name << " " << size;
      }
    }
    EXPECT_EQ(ThereAndBack(codec, Floats(256, kTiny)), Floats(256, 0.0F)) << codec.name;
  }
}

}  // namespace
}  // namespace thermocline::kernels
