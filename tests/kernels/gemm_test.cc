// Every gemm gives the reference's bits, and the reference is near a double-precision product.
#include <cmath>

#include "tests/kernels/tables.h"

namespace thermocline::kernels {
namespace {

struct Case {
  DType type;
  int rows, cols, tokens;
};

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (int t = 0; t < kNumNativeDTypes; ++t) {
    const auto type = static_cast<DType>(t);
    const int block = Traits(type).block_size;
    for (const int rows : {1, 15, 16, 17, 48}) {
      for (const int blocks : {1, 2, 3}) {
        for (const int tokens : {1, 2, 3, 8, 19, 41})
          cases.push_back({type, rows, block * blocks, tokens});
      }
    }
    // Longer than what is computed at once: of columns and of tokens.
    cases.push_back({type, 33, 4352, 130});
    cases.push_back({type, 17, 2560, 35});
    if (!Traits(type).quantized) {
      for (const int cols : {5, 172, 257}) cases.push_back({type, 33, cols, 3});
    }
  }
  return cases;
}

struct Operands {
  std::vector<float> x, scale, scaled_sum;
  std::vector<std::int8_t> q;
  std::vector<std::int32_t> sum, half_sum, pair_sum;
  std::vector<std::uint8_t> rows, packed;
  PackedMatrix matrix;
  Activations activations;

  explicit Operands(const Case& c)
      : x(RandomFloats(static_cast<std::size_t>(c.tokens) * static_cast<std::size_t>(c.cols), 7)) {
    q.resize(x.size());
    scale.resize(x.size() / 32 + 1);
    scaled_sum.resize(scale.size());
    sum.resize(scale.size());
    half_sum.resize(scale.size());
    pair_sum.resize(2 * scale.size());
    if (c.cols % 32 == 0) {
      ReferenceOps().quantize({.x = x.data(),
                               .n = static_cast<int>(x.size()),
                               .q = q.data(),
                               .scale = scale.data(),
                               .scaled_sum = scaled_sum.data(),
                               .sum = sum.data(),
                               .half_sum = half_sum.data(),
                               .pair_sum = pair_sum.data()});
    }
    rows = RandomRows(c.type, c.rows, c.cols, 3);
    packed = Pack(c.type, rows, c.rows, c.cols);
    matrix = {c.type, c.rows, c.cols, packed.data()};
    activations = {.x = x.data(),
                   .q = q.data(),
                   .scale = scale.data(),
                   .scaled_sum = scaled_sum.data(),
                   .sum = sum.data(),
                   .half_sum = half_sum.data(),
                   .pair_sum = pair_sum.data(),
                   .cols = c.cols};
  }

  std::vector<float> Multiply(const OpTable& ops, const Case& c, int panel_begin,
                              int panel_end) const {
    std::vector<float> out(static_cast<std::size_t>(c.tokens) * static_cast<std::size_t>(c.rows),
                           -1.0F);
    ops.gemm({.weights = matrix,
              .activations = activations,
              .tokens = c.tokens,
              .out = out.data(),
              .out_stride = c.rows,
              .panel_begin = panel_begin,
              .panel_end = panel_end});
    return out;
  }
};

std::string Name(const OpTable& ops, const Case& c) {
  return std::string(ops.name) + " " + Traits(c.type).name + " " + std::to_string(c.rows) + "x" +
         std::to_string(c.cols) + " T" + std::to_string(c.tokens);
}

TEST(Gemm, GivesTheReferencesBits) {
  // That no table is missing, CpuOps.TheTablesAreTheProcessorsOwn sees.
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
                               ? double{operands.scale[at / 32]} * operands.q[at]
                               : double{operands.x[at]};
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
        Activations one = operands.activations;
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
  const Case c{DType::kQ4_0, 48, 64, 2};
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

// The largest levels times the largest activations, of one sign and of both.
TEST(Gemm, TheLargestSumsFitTheirWords) {
  struct Levels {
    DType type;
    std::size_t block, begin, end;  // bytes
  };
  constexpr Levels kLevels[] = {{DType::kQ4_0, 18, 2, 18},   {DType::kQ4_1, 20, 4, 20},
                                {DType::kQ5_0, 22, 2, 22},   {DType::kQ5_1, 24, 4, 24},
                                {DType::kQ4_K, 144, 4, 144}, {DType::kQ5_K, 176, 4, 176},
                                {DType::kQ6_K, 210, 0, 192}};
  for (const Levels& levels : kLevels) {
    for (const int tokens : {1, 2, 4, 7}) {
      for (const int sign : {-1, 1, 0}) {
        const Case c{levels.type, 32, 512, tokens};
        Operands operands(c);
        for (std::size_t i = 0; i < operands.q.size(); ++i)
          operands.q[i] = static_cast<std::int8_t>(127 * (sign != 0 ? sign : i % 2 == 0 ? 1 : -1));
        for (auto& sum : operands.sum) sum = 127 * 32 * sign;
        for (auto& sum : operands.half_sum) sum = 127 * 16 * sign;
        for (auto& sum : operands.pair_sum)
          sum = (127 * 8 * sign & 0xFFFF) | 127 * 8 * sign * 0x10000;
        for (std::size_t i = 0; i < operands.rows.size(); ++i) {
          const std::size_t at = i % levels.block;
          if (at >= levels.begin && at < levels.end) operands.rows[i] = 0xFF;
        }
        operands.packed = Pack(c.type, operands.rows, c.rows, c.cols);
        operands.matrix.data = operands.packed.data();
        const auto expected = operands.Multiply(ReferenceOps(), c, 0, 2);
        for (const OpTable* ops : FastTables())
          EXPECT_EQ(operands.Multiply(*ops, c, 0, 2), expected)
              << ops->name << " " << Traits(c.type).name << " " << tokens << " " << sign;
      }
    }
  }
}

TEST(Gemm, ExtremeQuantsDoNotOverflow) {
  // 255 * 127 * 2 does not fit 16 bits: the trap of AVX2's byte products.
  const Case c{DType::kQ8_0, 16, 64, 1};
  Operands operands(c);
  for (auto& q : operands.q) q = -127;
  for (auto& sum : operands.sum) sum = -127 * 32;
  for (auto& sum : operands.half_sum) sum = -127 * 16;
  for (auto& sum : operands.pair_sum) sum = (-127 * 8 & 0xFFFF) | -127 * 8 * 0x10000;
  for (std::size_t i = 0; i < operands.rows.size(); ++i) {
    if (i % 34 >= 2) operands.rows[i] = 0x80;  // -128
  }
  operands.packed = Pack(c.type, operands.rows, c.rows, c.cols);
  operands.matrix.data = operands.packed.data();
  const auto expected = operands.Multiply(ReferenceOps(), c, 0, 1);
  EXPECT_GT(expected[0], 0);
  for (const OpTable* ops : FastTables())
    EXPECT_EQ(operands.Multiply(*ops, c, 0, 1), expected) << ops->name;
}

TEST(DotPeak, SaysHowManyProductsItMade) {
  for (int i = 0; i < CpuTables().count; ++i) {
    const OpTable& ops = *CpuTables().tables[i];
    const std::int64_t one = ops.dot_peak(1);
    EXPECT_GT(one, 0) << ops.name;
    EXPECT_EQ(ops.dot_peak(1000), 1000 * one) << ops.name;
  }
}

}  // namespace
}  // namespace thermocline::kernels
