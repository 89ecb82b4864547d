#include <cmath>
#include <cstdlib>
#include <cstring>

#include "tests/kernels/tables.h"

namespace thermocline::kernels {
namespace {

TEST(Half, EveryValueComesBack) {
  for (unsigned bits = 0; bits < 65536; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const float value = HalfToFloat(half);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(HalfToFloat(FloatToHalf(value))));
    } else {
      EXPECT_EQ(FloatToHalf(value), half) << bits;
    }
  }
}

TEST(Half, RoundsAsTheProcessorDoes) {
  const OpTable* ops = CpuOps();
  std::vector<float> x = RandomFloats(4096, 11, 100.0F);
  for (const float tiny : RandomFloats(4096, 12, 1e-6F)) x.push_back(tiny);
  for (const float edge :
       {65504.0F, 65519.9F, 65520.0F, 1e30F, -65520.0F, 5.9e-8F, 2.98e-8F, 0.0F, -0.0F})
    x.push_back(edge);
  std::vector<std::uint16_t> got(x.size());
  ops->to_half(x.data(), static_cast<int>(x.size()), got.data());
  for (std::size_t i = 0; i < x.size(); ++i) EXPECT_EQ(FloatToHalf(x[i]), got[i]) << x[i];
}

TEST(Quantize, ActivationsGiveTheReferencesBits) {
  constexpr std::size_t kBlocks = 9 + 32;
  auto x = RandomFloats(32 * kBlocks, 13, 3.0F);
  std::fill(x.begin(), x.begin() + 32, 0.0F);
  x[40] = 1000.0F;
  for (std::size_t i = 0; i < 32; ++i) x[32 * (9 + i) + i] = -50.0F;  // every lane has a maximum
  for (const OpTable* ops : FastTables()) {
    std::vector<std::int8_t> q1(x.size()), q2(x.size());
    std::vector<float> s1(kBlocks), s2(kBlocks), w1(kBlocks), w2(kBlocks);
    std::vector<std::int32_t> n1(kBlocks), n2(kBlocks), h1(kBlocks), h2(kBlocks), p1(2 * kBlocks),
        p2(2 * kBlocks);
    const int n = static_cast<int>(x.size());
    ReferenceOps().quantize(
        {x.data(), n, q1.data(), s1.data(), w1.data(), n1.data(), h1.data(), p1.data()});
    ops->quantize({x.data(), n, q2.data(), s2.data(), w2.data(), n2.data(), h2.data(), p2.data()});
    EXPECT_EQ(w1, w2);
    EXPECT_EQ(h1, h2);
    EXPECT_EQ(p1, p2);
    for (std::size_t b = 0; b < kBlocks; ++b) {
      const auto both = [](std::int32_t pair) {
        return static_cast<std::int16_t>(pair) + (pair >> 16);
      };
      EXPECT_EQ(both(p1[2 * b]), h1[b]);
      EXPECT_EQ(both(p1[2 * b]) + both(p1[2 * b + 1]), n1[b]);
    }
    EXPECT_EQ(q1, q2);
    EXPECT_EQ(s1, s2);
    EXPECT_EQ(n1, n2);
    EXPECT_EQ(s1[0], 0.0F);
    for (std::size_t i = 0; i < x.size(); ++i)
      EXPECT_NEAR(s1[i / 32] * static_cast<float>(q1[i]), x[i], s1[i / 32] * 0.501F);
  }
}

TEST(Quantize, RowsComeBackWithinHalfAStep) {
  const auto x = RandomFloats(256, 14);
  for (const DType type : {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0, DType::kQ4_0}) {
    std::vector<std::uint8_t> row(RowBytes(type, 256));
    std::vector<float> back(256);
    QuantizeRow(type, x.data(), 256, row.data());
    DequantizeRow(type, row.data(), 256, back.data());
    for (std::size_t i = 0; i < 256; ++i) {
      float largest = 0;
      for (std::size_t j = i / 32 * 32; j < i / 32 * 32 + 32; ++j)
        largest = std::max(largest, std::fabs(x[j]));
      const float step = type == DType::kQ8_0   ? largest / 127
                         : type == DType::kQ4_0 ? largest / 8
                         : type == DType::kF32  ? 0
                                                : std::fabs(x[i]) / 128;
      // Half a step of rounding, and the f16 scale's own rounding (2^-11) times up to 127 steps.
      // Q4_0 has no level for the value opposite its extreme, which may be a whole step off.
      EXPECT_NEAR(back[i], x[i], step * (type == DType::kQ4_0 ? 1.01F : 0.5F + 127.0F / 2048))
          << Traits(type).name;
    }
  }
}

TEST(Pack, RowsReadFromPanelsEqualRowsReadFromBlocks) {
  for (int t = 0; t < kNumDTypes; ++t) {
    const auto type = static_cast<DType>(t);
    const int rows = 21, cols = 512;
    const auto source = RandomRows(type, rows, cols, 15);
    const auto packed = Pack(type, source, rows, cols);
    const PackedMatrix matrix{type, rows, cols, packed.data()};
    std::vector<float> expected(cols), got(cols);
    for (int r = 0; r < rows; ++r) {
      DequantizeRow(type, source.data() + static_cast<std::size_t>(r) * RowBytes(type, cols), cols,
                    expected.data());
      DequantizePackedRow(matrix, r, got.data());
      EXPECT_EQ(got, expected) << Traits(type).name << " row " << r;
    }
  }
}

TEST(Convert, RowsOfTypesWithoutKernelsOnGpusKeepTheirValues) {
  for (const DType type :
       {DType::kQ2_K, DType::kQ3_K, DType::kIQ4_NL, DType::kIQ4_XS, DType::kMXFP4, DType::kTQ2_0}) {
    const DType native = DeviceType(type);
    ASSERT_FALSE(HasDeviceKernels(type));
    ASSERT_TRUE(HasDeviceKernels(native));
    EXPECT_EQ(ConvertsExactly(type, native), type != DType::kQ2_K && type != DType::kIQ4_XS);
    const auto row = RandomRows(type, 1, 512, 16);
    std::vector<std::uint8_t> converted(RowBytes(native, 512));
    ConvertRow(type, row.data(), 512, native, converted.data());
    std::vector<float> expected(512), got(512);
    DequantizeRow(type, row.data(), 512, expected.data());
    DequantizeRow(native, converted.data(), 512, got.data());
    if (type != DType::kQ2_K && type != DType::kIQ4_XS) {
      EXPECT_EQ(got, expected) << Traits(type).name;
      continue;
    }
    // Q2_K's pairs of scale and minimum have no equivalent in Q6_K; IQ4_XS's products of two scales
    // are rounded to f16.
    double error = 0, size = 0;
    for (std::size_t i = 0; i < got.size(); ++i) {
      error += std::pow(got[i] - expected[i], 2);
      size += std::pow(expected[i], 2);
    }
    EXPECT_LT(std::sqrt(error / size), type == DType::kQ2_K ? 0.02 : 3e-4);  // 0.013, 1.5e-4
    EXPECT_GT(error, 0);
  }
}

TEST(Verify, NonFiniteScalesAreFound) {
  for (int t = 0; t < kNumDTypes; ++t) {
    const auto type = static_cast<DType>(t);
    auto row = RandomRows(type, 1, 768, 17);
    EXPECT_EQ(FindNonFiniteBlock(type, row.data(), 768), -1) << Traits(type).name;
    const auto block_bytes = static_cast<std::size_t>(Traits(type).block_bytes);
    const int blocks = 768 / Traits(type).block_size, bad = blocks - 1;
    std::uint8_t* block = row.data() + static_cast<std::size_t>(bad) * block_bytes;
    const std::uint32_t infinity = 0x7F800000U;
    const std::uint16_t half = type == DType::kBF16 ? 0x7F80 : 0x7C00;
    if (type == DType::kF32) {
      std::memcpy(block, &infinity, 4);
    } else if (type == DType::kMXFP4) {
      *block = 255;
    } else {
      std::memcpy(block + ScaleOffsets(type).back(), &half, 2);
    }
    EXPECT_EQ(FindNonFiniteBlock(type, row.data(), 768), bad) << Traits(type).name;
  }
}

TEST(CpuOps, TheTablesAreTheProcessorsOwn) {
  std::string names;
  for (int i = 0; i < CpuTables().count; ++i)
    names += (i == 0 ? "" : " ") + std::string(CpuTables().tables[i]->name);
  // The build knows the tables of an emulated processor: tests/CMakeLists.txt.
  if (const char* expected = std::getenv("THERMOCLINE_TABLES")) {
    EXPECT_EQ(names, expected);
  }
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) {
    EXPECT_NE(CpuOps("avx2"), nullptr) << names;
  }
#endif
}

TEST(CpuOps, AnUnknownNameHasNoTable) {
  EXPECT_EQ(CpuOps("sse9"), nullptr);
  EXPECT_STREQ(CpuOps("reference")->name, "reference");
}

}  // namespace
}  // namespace thermocline::kernels
