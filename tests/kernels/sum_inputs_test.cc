// Sums over the rows of an input-major matrix: every table gives the reference's bits, for any
// division of the rows, and the reference is near double precision.
#include <algorithm>
#include <cmath>

#include "tests/kernels/random_rows.h"
#include "tests/kernels/tables.h"

namespace thermocline::kernels {
namespace {

struct Ints {
  std::vector<std::int32_t> high, low;
};

class SumInputsTest : public testing::Test {
 protected:
  struct Shape {
    DType type;
    int inputs, outputs;
  };
  static std::vector<Shape> Shapes() {
    std::vector<Shape> shapes;
    for (const DType type : {DType::kQ4_0, DType::kQ8_0}) {
      for (const int outputs : {32, 96, 128, 288, 1056}) shapes.push_back({type, 150, outputs});
    }
    return shapes;
  }

  void Make(const Shape& shape) {
    shape_ = shape;
    const auto gguf = RandomRows(shape.type, shape.inputs, shape.outputs, 23);
    data_.resize(gguf.size());
    const std::size_t row = RowBytes(shape.type, shape.outputs);
    for (int r = 0; r < shape.inputs; r += kPanelRows)
      PackRows(shape.type, gguf.data() + static_cast<std::size_t>(r) * row,
               std::min(kPanelRows, shape.inputs - r), shape.outputs,
               data_.data() + static_cast<std::size_t>(r) * row);
    matrix_ = {shape.type, shape.inputs, shape.outputs, data_.data()};
    ids_.clear();
    x_.clear();
    const auto values = RandomFloats(static_cast<std::size_t>(shape.inputs), 5);
    for (int j = 0; j < shape.inputs; ++j) {
      if (j % 3 == 1) continue;
      ids_.push_back(j);
      x_.push_back(values[static_cast<std::size_t>(j)] * (j % 40 == 0 ? 30.0F : 1.0F));
    }
    // Limits that are at least every |x a|, where a is a block's scale: of 32 random levels, one is
    // more than half of the largest, so a <= largest / steps.
    std::vector<float> weights(static_cast<std::size_t>(shape.outputs));
    float largest = 0, most = 0;
    for (int j = 0; j < shape.inputs; ++j) {
      DequantizeMatrixRow(matrix_, j, weights.data());
      for (const float w : weights) largest = std::max(largest, std::fabs(w));
    }
    for (const float x : x_) most = std::max(most, std::fabs(x));
    const float steps = shape.type == DType::kQ4_0 ? 4 : 64;
    limits_.assign(static_cast<std::size_t>(shape.outputs / 32), most * largest / steps);
  }

  Ints Part(const OpTable& ops, int begin, int end) const {
    Ints ints{std::vector<std::int32_t>(static_cast<std::size_t>(shape_.outputs), -1), {}};
    ints.low = ints.high;
    std::vector<std::uint8_t> scratch(SumInputsScratchBytes(shape_.outputs));
    ops.sum_inputs({.weights = matrix_,
                    .ids = ids_.data() + begin,
                    .x = x_.data() + begin,
                    .count = end - begin,
                    .limits = limits_.data(),
                    .high = ints.high.data(),
                    .low = ints.low.data(),
                    .scratch = scratch.data()});
    return ints;
  }
  Ints Whole(const OpTable& ops) const { return Part(ops, 0, static_cast<int>(ids_.size())); }

  Shape shape_{};
  std::vector<std::uint8_t> data_;
  RowMatrix matrix_;
  std::vector<int> ids_;
  std::vector<float> x_, limits_;
};

TEST_F(SumInputsTest, TheReferenceIsNearDoublePrecision) {
  for (const Shape& shape : Shapes()) {
    Make(shape);
    const Ints got = Whole(ReferenceOps());
    std::vector<double> want(static_cast<std::size_t>(shape.outputs)), size = want;
    std::vector<float> row(want.size());
    for (std::size_t k = 0; k < ids_.size(); ++k) {
      DequantizeMatrixRow(matrix_, ids_[k], row.data());
      for (std::size_t c = 0; c < row.size(); ++c) {
        want[c] += static_cast<double>(x_[k]) * row[c];
        size[c] += std::fabs(static_cast<double>(x_[k]) * row[c]);
      }
    }
    for (std::size_t c = 0; c < want.size(); ++c) {
      const double scale = static_cast<double>(limits_[c / 32]) / kCoefficientMax;
      const double y = scale * (256.0 * got.high[c] + got.low[c]);
      EXPECT_NEAR(y, want[c], 2e-3 * size[c]) << c;
    }
  }
}

TEST_F(SumInputsTest, EveryTableHasTheReferencesBits) {
  for (const Shape& shape : Shapes()) {
    Make(shape);
    const Ints want = Whole(ReferenceOps());
    for (int i = 0; i < CpuTables().count; ++i) {
      const OpTable& ops = *CpuTables().tables[i];
      const Ints got = Whole(ops);
      EXPECT_EQ(got.high, want.high) << ops.name << " " << shape.outputs;
      EXPECT_EQ(got.low, want.low) << ops.name << " " << shape.outputs;
    }
  }
}

TEST_F(SumInputsTest, PartsAddUpToTheWhole) {
  for (int i = 0; i < CpuTables().count; ++i) {
    const OpTable& ops = *CpuTables().tables[i];
    for (const Shape& shape : Shapes()) {
      Make(shape);
      const Ints want = Whole(ops);
      const int all = static_cast<int>(ids_.size());
      for (const int cut : {0, 1, 37, all}) {
        Ints sum = Part(ops, 0, cut);
        const Ints rest = Part(ops, cut, all);
        for (std::size_t c = 0; c < sum.high.size(); ++c) {
          sum.high[c] += rest.high[c];
          sum.low[c] += rest.low[c];
        }
        EXPECT_EQ(sum.high, want.high) << ops.name << " " << cut;
        EXPECT_EQ(sum.low, want.low) << ops.name << " " << cut;
      }
    }
  }
}

}  // namespace
}  // namespace thermocline::kernels
