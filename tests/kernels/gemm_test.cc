// Every gemm gives the reference's bits, and the reference is near a double-precision product.
#include <cmath>

#include "tests/kernels/random_tokens.h"
#include "tests/kernels/tables.h"

namespace thermocline::kernels {
namespace {

struct Case {
  DType type;
  int rows, cols, tokens;
};

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (int t = 0; t < kNumDTypes; ++t) {
    const auto type = static_cast<DType>(t);
    const int block = Traits(type).block_size;
    for (const int rows : {1, 15, 16, 17, 48}) {
      for (const int blocks : {1, 2, 3}) {
        for (const int tokens : {1, 2, 3, 8, 19, 41})
          cases.push_back({type, rows, block * blocks, tokens});
      }
    }
    // More columns and tokens than are computed at once.
    cases.push_back({type, 33, 4352, 130});
    cases.push_back({type, 17, 2560, 35});
    if (!Traits(type).quantized) {
      for (const int cols : {5, 172, 257}) cases.push_back({type, 33, cols, 3});
    }
  }
  return cases;
}

struct Operands {
  RandomTokens input;
  std::vector<std::uint8_t> rows, packed;
  PackedMatrix matrix;

  explicit Operands(const Case& c)
      : input(c.tokens, c.cols),
        rows(RandomRows(c.type, c.rows, c.cols, 3)),
        packed(Pack(c.type, rows, c.rows, c.cols)),
        matrix{c.type, c.rows, c.cols, packed.data()} {}

  std::vector<float> Multiply(const OpTable& ops, const Case& c, int panel_begin, int panel_end,
                              int prefetch_bytes = kPrefetchBytes) const {
    std::vector<float> out(static_cast<std::size_t>(c.tokens) * static_cast<std::size_t>(c.rows),
                           -1.0F);
    ops.gemm({.weights = matrix,
              .activations = input.view,
              .tokens = c.tokens,
              .out = out.data(),
              .out_stride = c.rows,
              .panel_begin = panel_begin,
              .panel_end = panel_end,
              .prefetch_bytes = prefetch_bytes});
    return out;
  }
};

std::string Name(const OpTable& ops, const Case& c) {
  return std::string(ops.name) + " " + Traits(c.type).name + " " + std::to_string(c.rows) + "x" +
         std::to_string(c.cols) + " T" + std::to_string(c.tokens);
}

TEST(Gemm, GivesTheReferencesBits) {
  // CpuOps.TheTablesAreTheProcessorsOwn checks that no table is missing.
  if (FastTables().empty()) GTEST_SKIP() << "this processor runs the reference alone";
  for (const Case& c : Cases()) {
    const Operands operands(c);
    const auto expected = operands.Multiply(ReferenceOps(), c, 0, NumPanels(c.rows));
    for (const OpTable* ops : FastTables()) {
      EXPECT_EQ(operands.Multiply(*ops, c, 0, NumPanels(c.rows)), expected) << Name(*ops, c);
    }
  }
}

TEST(Gemm, ReferenceIsNearTheExactProduct) {
  for (const Case& c : Cases()) {
    const Operands operands(c);
    const auto got = operands.Multiply(ReferenceOps(), c, 0, NumPanels(c.rows));
    std::vector<float> row(static_cast<std::size_t>(c.cols));
    for (int r = 0; r < c.rows; ++r) {
      DequantizeRow(c.type,
                    operands.rows.data() + static_cast<std::size_t>(r) * RowBytes(c.type, c.cols),
                    c.cols, row.data());
      for (int t = 0; t < c.tokens; ++t) {
        double exact = 0, size = 0;
        for (int i = 0; i < c.cols; ++i) {
          const std::size_t at = static_cast<std::size_t>(t * c.cols + i);
          const double x = Traits(c.type).quantized
                               ? double{operands.input.scale[at / 32]} * operands.input.q[at]
                               : double{operands.input.x[at]};
          exact += row[static_cast<std::size_t>(i)] * x;
          size += std::fabs(row[static_cast<std::size_t>(i)] * x);
        }
        EXPECT_NEAR(got[static_cast<std::size_t>(t * c.rows + r)], exact, 1e-5 * size + 1e-6)
            << Name(ReferenceOps(), c);
      }
    }
  }
}

TEST(Gemm, ATokensBitsDoNotDependOnItsBatch) {
  for (const OpTable* ops : FastTables()) {
    for (const Case& c : Cases()) {
      if (c.tokens != 19) continue;
      const Operands operands(c);
      const auto batch = operands.Multiply(*ops, c, 0, NumPanels(c.rows));
      for (int t = 0; t < c.tokens; ++t) {
        Activations one = operands.input.view;
        one.x += t * c.cols;
        one.q += t * c.cols;
        one.scale += t * c.cols / 32;
        one.scaled_sum += t * c.cols / 32;
        one.sum += t * c.cols / 32;
        one.half_sum += t * c.cols / 32;
        one.pair_sum += t * c.cols / 16;
        std::vector<float> alone(static_cast<std::size_t>(c.rows));
        ops->gemm({.weights = operands.matrix,
                   .activations = one,
                   .tokens = 1,
                   .out = alone.data(),
                   .out_stride = c.rows,
                   .panel_begin = 0,
                   .panel_end = NumPanels(c.rows)});
        EXPECT_EQ(alone,
                  std::vector<float>(batch.begin() + t * c.rows, batch.begin() + (t + 1) * c.rows))
            << Name(*ops, c);
      }
    }
  }
}

TEST(Gemm, WritesOnlyItsPanels) {
  for (const int tokens : {2, 11}) {
    const Case c{DType::kQ4_0, 48, 64, tokens};
    const Operands operands(c);
    for (const OpTable* ops : FastTables()) {
      const auto middle = operands.Multiply(*ops, c, 1, 2), all = operands.Multiply(*ops, c, 0, 3);
      for (int t = 0; t < c.tokens; ++t) {
        for (int r = 0; r < c.rows; ++r) {
          const auto at = static_cast<std::size_t>(t * c.rows + r);
          EXPECT_EQ(middle[at], r >= 16 && r < 32 ? all[at] : -1.0F);
        }
      }
    }
  }
}

// The bytes of the levels, and activations whose sign changes every `run` elements.
struct Extreme {
  std::uint8_t even, odd;  // bytes of the levels
  std::size_t run;         // 0 = never
};

// Sets activations of 127 and -127, and the sums that Quantize would add.
void SetExtremes(const Extreme& extreme, int sign, Operands& o) {
  for (std::size_t i = 0; i < o.input.q.size(); ++i) {
    const bool turned = extreme.run > 0 && i / extreme.run % 2 == 1;
    o.input.q[i] = static_cast<std::int8_t>(turned ? -127 * sign : 127 * sign);
  }
  for (std::size_t b = 0; b < o.input.q.size() / 32; ++b) {
    o.input.sum[b] = 0;
    for (std::size_t half = 0; half < 2; ++half) {
      int low = 0, high = 0;
      for (std::size_t c = 0; c < 16; ++c)
        (c % 4 < 2 ? low : high) += o.input.q[32 * b + 16 * half + c];
      o.input.pair_sum[2 * b + half] = (low & 0xFFFF) | high * 0x10000;
      if (half == 0) o.input.half_sum[b] = low + high;
      o.input.sum[b] += low + high;
    }
  }
}

// The largest and smallest levels times the largest activations, with equal signs and with signs
// that change inside the sums, for each number of tokens with its own code.
TEST(Gemm, TheLargestSumsFitTheirWords) {
  struct Levels {
    DType type;
    std::size_t block, begin, end;  // bytes
  };
  constexpr Levels kLevels[] = {
      {DType::kQ8_0, 34, 2, 34},   {DType::kQ4_0, 18, 2, 18},   {DType::kQ4_1, 20, 4, 20},
      {DType::kQ5_0, 22, 2, 22},   {DType::kQ5_1, 24, 4, 24},   {DType::kQ4_K, 144, 4, 144},
      {DType::kQ5_K, 176, 4, 176}, {DType::kQ6_K, 210, 0, 192}, {DType::kQ2_K, 84, 0, 80},
      {DType::kQ3_K, 110, 0, 108}, {DType::kIQ4_NL, 18, 2, 18}, {DType::kIQ4_XS, 136, 2, 136},
      {DType::kMXFP4, 17, 1, 17},  {DType::kTQ2_0, 66, 0, 64}};
  constexpr Extreme kExtremes[] = {{0xFF, 0xFF, 0}, {0, 0, 0},       {0x80, 0x7F, 0},
                                   {0xFF, 0xFF, 2}, {0, 0xFF, 1},    {0x80, 0x80, 4},
                                   {0x80, 0x80, 0}, {0x7F, 0x7F, 16}};
  for (const Levels& levels : kLevels) {
    for (const int tokens : {1, 2, 4, 7, 12, 19}) {
      for (const Extreme& extreme : kExtremes) {
        for (const int sign : {-1, 1}) {
          const Case c{levels.type, 32, 512, tokens};
          Operands operands(c);
          SetExtremes(extreme, sign, operands);
          for (std::size_t i = 0; i < operands.rows.size(); ++i) {
            const std::size_t at = i % levels.block;
            if (at >= levels.begin && at < levels.end)
              operands.rows[i] = i % 2 == 0 ? extreme.even : extreme.odd;
          }
          operands.packed = Pack(c.type, operands.rows, c.rows, c.cols);
          operands.matrix.data = operands.packed.data();
          const auto expected = operands.Multiply(ReferenceOps(), c, 0, 2);
          for (const OpTable* ops : FastTables())
            EXPECT_EQ(operands.Multiply(*ops, c, 0, 2), expected)
                << ops->name << " " << Traits(c.type).name << " " << tokens << " "
                << int{extreme.even} << " " << int{extreme.odd} << " " << extreme.run;
        }
      }
    }
  }
}

// As floats, 2^-128 and 2^-127 are subnormal.
TEST(Gemm, EveryScaleOfMxfp4IsAPowerOfTwo) {
  constexpr int kRows = 254;
  const Case c{DType::kMXFP4, kRows, 32, 1};
  Operands operands(c);
  for (std::size_t e = 0; e < kRows; ++e) operands.rows[e * 17] = static_cast<std::uint8_t>(e);
  operands.packed = Pack(c.type, operands.rows, c.rows, c.cols);
  operands.matrix.data = operands.packed.data();
  const auto expected = operands.Multiply(ReferenceOps(), c, 0, NumPanels(kRows));
  EXPECT_NE(expected[0], 0.0F);
  for (const OpTable* ops : FastTables())
    EXPECT_EQ(operands.Multiply(*ops, c, 0, NumPanels(kRows)), expected) << ops->name;
}

TEST(Gemm, AskingForWeightsAheadChangesNoBit) {
  for (const DType type : {DType::kQ4_0, DType::kQ8_0, DType::kQ6_K, DType::kQ2_K}) {
    for (const int tokens : {1, 4}) {
      const Case c{type, 33, 768, tokens};
      const Operands operands(c);
      const auto expected = operands.Multiply(ReferenceOps(), c, 0, 3);
      for (const OpTable* ops : FastTables()) {
        for (const int bytes : {0, 64, 1 << 20}) {  // also far beyond the matrix
          EXPECT_EQ(operands.Multiply(*ops, c, 0, 3, bytes), expected) << Name(*ops, c);
        }
      }
    }
  }
}

TEST(DotPeak, CountsProductsByTheRound) {
  for (int i = 0; i < CpuTables().count; ++i) {
    const OpTable& ops = *CpuTables().tables[i];
    const std::int64_t one = ops.dot_peak(1);
    EXPECT_GT(one, 0) << ops.name;
    EXPECT_EQ(ops.dot_peak(1000), 1000 * one) << ops.name;
  }
}

}  // namespace
}  // namespace thermocline::kernels
